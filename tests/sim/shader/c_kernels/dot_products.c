#include "gpu.h"
KERNEL dot_products(i32 *out, const u32 *a, const u32 *b) {
  u32 i = group() * 32 + thread();
  out[4 * i] = __builtin_amdgcn_udot4(a[i], b[i], 7, 0);
  out[4 * i + 1] = __builtin_amdgcn_sudot4(1, a[i], 1, b[i], -7, 0);
  out[4 * i + 2] = __builtin_amdgcn_sudot4(0, a[i], 1, b[i], i, 0);
  out[4 * i + 3] = __builtin_amdgcn_sudot8(1, a[i], 0, b[i], 100, 0);
}
