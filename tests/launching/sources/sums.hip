// One sum for each workgroup, the total, and a count of positive elements.
#include <hip/hip_runtime.h>

template <typename T> __device__ T wave_sum(T value) {
  for (int mask = 16; mask; mask /= 2) value += __shfl_xor(value, mask);
  return value;
}

__global__ void sums(float *sums, const float *x, int *count, unsigned *shape) {
  __shared__ float part[2];
  unsigned i = threadIdx.x;
  float value = x[blockIdx.x * blockDim.x + i];
  if (value > 0) atomicAdd(count, 1);
  value = wave_sum(value);
  if (i % warpSize == 0) part[i / warpSize] = value;
  __syncthreads();
  if (i == 0) sums[blockIdx.x] = sqrtf(fabsf(part[0] + part[1]));
  if (i == 0 && blockIdx.x == 0) {
    shape[0] = gridDim.x * blockDim.x;
    shape[1] = gridDim.x;
    shape[2] = gridDim.y;
    shape[3] = blockIdx.y + gridDim.z;
  }
}
