#include "gpu.h"
KERNEL division64(i64 *out, const i64 *a, const i64 *b) {
  u32 i = group() * 32 + thread();
  out[4 * i] = a[i] / b[i];
  out[4 * i + 1] = a[i] % b[i];
  out[4 * i + 2] = (u64)a[i] / (u64)b[i];
  out[4 * i + 3] = a[i] / 1000003;
}
