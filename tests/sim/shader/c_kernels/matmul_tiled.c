#include "gpu.h"
/* 16x16 tiles through LDS; the sum runs over k in order. */
LDS float left[16][17], right[16][17];
KERNEL matmul_tiled(float *c, const float *a, const float *b, u32 n) {
  u32 col = thread() % 16, row = thread() / 16, tiles = n / 16;
  u32 top = group() / tiles * 16, side = group() % tiles * 16;
  float sum = 0;
  for (u32 k = 0; k < n; k += 16) {
    left[row][col] = a[(top + row) * n + k + col];
    right[row][col] = b[(k + row) * n + side + col];
    barrier();
    for (u32 i = 0; i < 16; i++) sum += left[row][i] * right[i][col];
    barrier();
  }
  c[(top + row) * n + side + col] = sum;
}
