#include "gpu.h"
/* bfloat16: the compiler rounds with integers, as gfx1201 has no such conversion. */
KERNEL brain_floats(__bf16 *out, float *wide, const __bf16 *a, const float *b) {
  u32 i = group() * 32 + thread();
  out[2 * i] = (__bf16)((float)a[i] * b[i]);
  out[2 * i + 1] = (__bf16)b[i];
  wide[i] = (float)a[i] + b[i];
}
