#include "gpu.h"
/* Four waves pass values round through LDS, a barrier a step. */
LDS u32 slot[2][128];
KERNEL relay(u32 *out, const u32 *in, u32 steps) {
  u32 t = thread(), x = in[group() * 128 + t];
  for (u32 i = 0; i < steps; i++) {
    slot[i & 1][(t + 37) % 128] = x + i;
    barrier();
    x ^= slot[i & 1][t] * 3;
  }
  out[group() * 128 + t] = x;
}
