#include "gpu.h"
KERNEL square_roots(float *out, double *wide, u32 *whole, const float *in) {
  u32 i = group() * 32 + thread();
  out[i] = __builtin_sqrtf(in[i]);
  wide[i] = __builtin_sqrt((double)in[i] * 3);
  u32 n = (u32)in[i], root = 0;
  for (u32 bit = 1 << 15; bit; bit >>= 1)
    if ((root + bit) * (root + bit) <= n) root += bit;
  whole[i] = root;
}
