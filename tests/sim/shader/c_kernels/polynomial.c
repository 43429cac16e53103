#include "gpu.h"
/* exp by range reduction and Horner with fused multiply-adds, ldexp and frexp; float32 and float64. */
KERNEL polynomial(float *out, double *wide, i32 *power, const float *in) {
  u32 i = group() * 32 + thread();
  float x = in[i], k = __builtin_rintf(x * 1.44269504f), r = __builtin_fmaf(k, -0.693147182f, x);
  float p = 0.0013888889f;
  p = __builtin_fmaf(p, r, 0.0083333333f), p = __builtin_fmaf(p, r, 0.041666667f), p = __builtin_fmaf(p, r, 0.16666667f);
  p = __builtin_fmaf(p, r, 0.5f), p = __builtin_fmaf(p, r, 1.0f), p = __builtin_fmaf(p, r, 1.0f);
  out[i] = __builtin_ldexpf(p, (i32)k);
  double d = x;
  wide[i] = __builtin_floor(d * 10) + __builtin_fma(d, d, 0.1) + __builtin_trunc(d) * __builtin_fabs(d);
  power[i] = __builtin_amdgcn_frexp_expf(x) + (i32)(__builtin_amdgcn_frexp_mantf(x) * 1000);
}
