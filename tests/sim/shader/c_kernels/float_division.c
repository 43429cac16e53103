#include "gpu.h"
/* IEEE division of float32, by v_div_scale, v_div_fmas and v_div_fixup. */
KERNEL float_division(float *out, const float *a, const float *b) {
  u32 i = group() * 64 + thread();
  out[i] = a[i] / b[i];
}
