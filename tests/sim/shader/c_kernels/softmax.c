#include "gpu.h"
/* A row of 128 a group; exp2 is the instruction, sums are trees in LDS. */
LDS float cell[128];
KERNEL softmax(float *out, const float *in) {
  u32 t = thread();
  float x = in[group() * 128 + t] * 1.44269504f;
  cell[t] = x;
  for (u32 half = 64; half; half /= 2) {
    barrier();
    if (t < half) cell[t] = cell[t] > cell[t + half] ? cell[t] : cell[t + half];
  }
  barrier();
  float most = cell[0];
  barrier();
  float power = __builtin_amdgcn_exp2f(x - most);
  cell[t] = power;
  for (u32 half = 64; half; half /= 2) {
    barrier();
    if (t < half) cell[t] += cell[t + half];
  }
  barrier();
  out[group() * 128 + t] = power * __builtin_amdgcn_rcpf(cell[0]);
}
