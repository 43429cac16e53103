#include "gpu.h"
typedef f16 Two __attribute__((ext_vector_type(2)));
KERNEL packed_half(Two *out, const Two *a, const Two *b) {
  u32 i = group() * 32 + thread();
  out[3 * i] = a[i] + b[i];
  out[3 * i + 1] = a[i] * b[i].yx;
  out[3 * i + 2] = __builtin_elementwise_max(a[i], -b[i]);
}
