#include "gpu.h"
/* Blocks of 32 signed bytes with a half-precision scale, times float32: a matrix row a wave. */
typedef struct { f16 scale; i8 values[32]; } Block;
KERNEL quantized(float *out, const Block *rows, const float *x, u32 blocks) {
  u32 lane = thread() % 32, row = group() * 2 + thread() / 32;
  float sum = 0;
  for (u32 k = 0; k < blocks; k++) {
    const Block *b = rows + row * blocks + k;
    sum += (float)b->scale * (float)b->values[lane] * x[k * 32 + lane];
  }
  for (u32 step = 1; step < 32; step *= 2)
    sum += __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane ^ step) * 4, __builtin_bit_cast(u32, sum)));
  if (lane == 0) out[row] = sum;
}
