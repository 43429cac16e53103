#include "gpu.h"
KERNEL double_precision(double *out, const double *a, const double *b, u32 n) {
  u32 i = group() * 32 + thread();
  if (i >= n) return;
  double x = a[i], y = b[i];
  out[4 * i] = x / y;
  out[4 * i + 1] = x * y - 3.5;
  out[4 * i + 2] = __builtin_fma(x, y, -1.0);
  out[4 * i + 3] = (double)(float)x + (double)(i32)(y < 1e9 && y > -1e9 ? y : 0);
}
