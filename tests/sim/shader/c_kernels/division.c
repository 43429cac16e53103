#include "gpu.h"
KERNEL division(i32 *out, const i32 *a, const i32 *b) {
  u32 i = group() * 64 + thread();
  out[4 * i] = a[i] / b[i];
  out[4 * i + 1] = a[i] % b[i];
  out[4 * i + 2] = (u32)a[i] / (u32)b[i];
  out[4 * i + 3] = (u32)a[i] % (u32)b[i];
}
