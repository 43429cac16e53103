#include "gpu.h"
/* Arrays whose size is known at run time only, on the stack of a function. */
static NOINLINE u32 turned(const u32 *in, u32 n) {
  u32 copy[n], sum = 0;
  for (u32 k = 0; k < n; k++) copy[n - 1 - k] = in[k];
  for (u32 k = 0; k < n; k++) sum = sum * 7 + copy[k];
  return sum;
}
KERNEL dynamic_stack(u32 *out, const u32 *in, const u32 *counts) {
  u32 i = thread();
  out[i] = turned(in + i * 8, counts[0]) ^ turned(in + i * 8, counts[1]);
}
