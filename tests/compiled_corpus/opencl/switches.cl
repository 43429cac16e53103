#include "gpu.h"
/* A switch dense enough for a table, with a case that falls through and one that returns. */
kernel SIZED(64) void switches(global uint *out, global const uint *in) {
  uint i = GROUP * 64 + ID, x = in[i], y = x >> 4;
  switch (x & 15) {
    case 0: y = ~y; break;
    case 1: y *= 7; break;
    case 2: y += 0x12345;
    case 3: y ^= y >> 3; break;
    case 4: y = y << 5 | y >> 27; break;
    case 5: y = __builtin_popcount(y); break;
    case 6: out[i] = 6; return;
    case 7: y = __builtin_bitreverse32(y); break;
    case 8: y = y % 1000; break;
    case 9: y = y / 77; break;
    case 10: y = y ? __builtin_clz(y) : 99; break;
    case 11: for (uint k = 0; k < (x >> 28); k++) y = y * 3 + 1; break;
    case 12: y = y & -y; break;
    default: y = x;
  }
  out[i] = y;
}
