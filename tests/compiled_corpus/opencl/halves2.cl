#include "gpu.h"
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel SIZED(64) void halves2(global half2 *out, global const half2 *a, global const half2 *b, uint n) {
  uint i = GROUP * 64 + ID;
  if (i < n) out[i] = (a[i] + b[i].yx) * a[i] - b[i];
}
