#include "gpu.h"
kernel SIZED(64) void saturating_bytes(global uchar4 *out, global const uchar4 *a, global const uchar4 *b) {
  uint i = GROUP * 64 + ID;
  ushort4 sum = __builtin_convertvector(a[i], ushort4) + __builtin_convertvector(b[i], ushort4);
  sum = sum > (ushort4)(255) ? (ushort4)(255) : sum;
  out[i] = __builtin_convertvector(sum, uchar4);
}
