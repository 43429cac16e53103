#include "gpu.h"
LDS u32 tile[32][33];
KERNEL transpose(u32 *out, const u32 *in, u32 n) {
  u32 x = thread() % 32, y = thread() / 32, left = group() % (n / 32) * 32, top = group() / (n / 32) * 32;
  for (u32 k = y; k < 32; k += 8) tile[k][x] = in[(top + k) * n + left + x];
  barrier();
  for (u32 k = y; k < 32; k += 8) out[(left + k) * n + top + x] = tile[x][k];
}
