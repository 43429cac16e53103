#include "gpu.h"
kernel void grid_strides(global ulong *sums, global const uint *in, uint n, uint groups) {
  ulong sum = 0;
  for (uint i = GROUP * SIZE + ID; i < n; i += groups * SIZE) sum += in[i] | 1;
  sums[GROUP * SIZE + ID] = sum;
}
