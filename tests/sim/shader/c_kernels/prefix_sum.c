#include "gpu.h"
/* Inclusive scan of 256, double-buffered in LDS. */
LDS u32 row[2][256];
KERNEL prefix_sum(u32 *out, const u32 *in) {
  u32 t = thread(), now = 0;
  row[0][t] = in[group() * 256 + t];
  for (u32 step = 1; step < 256; step *= 2) {
    barrier();
    row[1 - now][t] = row[now][t] + (t >= step ? row[now][t - step] : 0);
    now = 1 - now;
  }
  barrier();
  out[group() * 256 + t] = row[now][t];
}
