#include "gpu.h"
KERNEL half_precision(f16 *out, const f16 *a, const f16 *b) {
  u32 i = group() * 32 + thread();
  f16 x = a[i], y = b[i];
  out[4 * i] = x + y;
  out[4 * i + 1] = x * y;
  out[4 * i + 2] = x > y ? x - y : y;
  out[4 * i + 3] = (f16)((float)x * 0.1f);
}
