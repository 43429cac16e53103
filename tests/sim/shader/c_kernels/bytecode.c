#include "gpu.h"
/* A stack machine: a switch in a loop, the stack in scratch. */
KERNEL bytecode(i32 *out, const u8 *code, const i32 *inputs, u32 length) {
  i32 stack[16], x = inputs[group() * 32 + thread()];
  u32 top = 0;
  for (u32 at = 0; at < length; at++) {
    switch (code[at]) {
    case 0: stack[top++] = x; break;
    case 1: stack[top++] = code[++at]; break;
    case 2: top--, stack[top - 1] += stack[top]; break;
    case 3: top--, stack[top - 1] -= stack[top]; break;
    case 4: top--, stack[top - 1] *= stack[top]; break;
    case 5: top--, stack[top - 1] ^= stack[top]; break;
    case 6: stack[top] = stack[top - 1], top++; break;
    case 7: top--, stack[top - 1] = stack[top - 1] < stack[top]; break;
    case 8: if (!stack[--top]) at += code[at + 1] + 1; else at++; break;
    case 9: stack[top - 1] = -stack[top - 1]; break;
    case 10: { i32 a = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = a; } break;
    default: stack[top - 1] = ~stack[top - 1]; break;
    }
  }
  out[group() * 32 + thread()] = stack[top - 1];
}
