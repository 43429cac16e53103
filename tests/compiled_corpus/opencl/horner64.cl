#include "gpu.h"
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel SIZED(32) void horner64(global double *out, global const double *in, uint terms) {
  double x = in[GROUP * 32 + ID], sum = 0.0;
  for (uint k = terms; k > 0; k--) sum = sum * x + 1.0 / (double)k;
  out[GROUP * 32 + ID] = x < 0.0 ? -sum : sum;
}
