// https://github.com/iree-org/iree/pull/22669: the first store to shared memory is not ordered after the reads before
#include <hip/hip_runtime.h>

__global__ void prologue(float *out, const float *x) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  tile[i] = x[i];
  __syncthreads();
  float sum = tile[63 - i];
  tile[i] = x[64 + i]; // BUG
  __syncthreads();
  out[i] = sum + tile[63 - i];
}
