// https://github.com/ROCm/rocm-systems/pull/8721: a load in inline assembly, and the wait for it in another statement
#include <hip/hip_runtime.h>

__global__ void load_in_asm(float *out, const float *x) {
  int i = threadIdx.x;
  float value;
  const float *at = x + i;
  __asm__ volatile("global_load_b32 %0, %1, off" : "=v"(value) : "v"(at) : "memory");
  float twice = value + value; // BUG
  __asm__ volatile("s_wait_loadcnt 0" ::: "memory");
  out[i] = twice;
}
