#include "gpu.h"
/* One function over global memory, LDS and scratch: flat addressing. */
static NOINLINE u32 sum_of(const u32 *p, u32 n) {
  u32 sum = 0;
  for (u32 k = 0; k < n; k++) sum = sum * 5 + p[k];
  return sum;
}
LDS u32 shared[32 * 4];
KERNEL generic_pointers(u32 *out, const u32 *in) {
  u32 i = thread(), own[4];
  for (u32 k = 0; k < 4; k++) own[k] = in[4 * i + k] ^ k, shared[4 * i + k] = in[4 * i + k] + k;
  barrier();
  out[3 * i] = sum_of(in + 4 * i, 4);
  out[3 * i + 1] = sum_of((const u32 *)&shared[4 * (31 - i)], 4);
  out[3 * i + 2] = sum_of(own, 4);
}
