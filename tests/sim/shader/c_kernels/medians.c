#include "gpu.h"
/* Median of nine by exchanges, clamping, minima and maxima of three. */
static void order(float *a, float *b) {
  float low = __builtin_fminf(*a, *b), high = __builtin_fmaxf(*a, *b);
  *a = low, *b = high;
}
KERNEL medians(float *out, i32 *whole, const float *in, u32 n) {
  u32 i = group() * 64 + thread();
  float v[9];
  for (u32 k = 0; k < 9; k++) v[k] = in[i + k < n ? i + k : n - 1];
  order(v + 1, v + 2), order(v + 4, v + 5), order(v + 7, v + 8), order(v, v + 1), order(v + 3, v + 4);
  order(v + 6, v + 7), order(v + 1, v + 2), order(v + 4, v + 5), order(v + 7, v + 8), order(v, v + 3);
  order(v + 5, v + 8), order(v + 4, v + 7), order(v + 3, v + 6), order(v + 1, v + 4), order(v + 2, v + 5);
  order(v + 4, v + 7), order(v + 4, v + 2), order(v + 6, v + 4), order(v + 4, v + 2);
  out[i] = v[4];
  float scaled = __builtin_amdgcn_fmed3f(in[i] * 50, -100.0f, 100.0f);
  whole[i] = (i32)scaled;
}
