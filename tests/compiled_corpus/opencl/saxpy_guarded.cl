#include "gpu.h"
kernel void saxpy_guarded(global float *y, global const float *x, float a, uint n) {
  uint i = GROUP * SIZE + ID;
  if (i < n) y[i] = a * x[i] + y[i];
}
