#include "gpu.h"
/* 16x16x16 on the matrix cores of gfx11: A and B in both halves of the wave, the rows of D interleaved. */
typedef half Half16 __attribute__((ext_vector_type(16)));
typedef float Float8 __attribute__((ext_vector_type(8)));
typedef int Int8 __attribute__((ext_vector_type(8)));
kernel SIZED(32) void matrix_copies(global float *c, global int *ci, global const half *a, global const half *b,
                                    global const char *ai, global const char *bi) {
  uint n = ID % 16, upper = ID / 16;
  Half16 left, right;
  for (uint k = 0; k < 16; k++) left[k] = a[n * 16 + k], right[k] = b[k * 16 + n];
  Float8 sum = {0, 0, 0, 0, 0, 0, 0, 0};
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(left, right, sum);
  int4 whole = *(global const int4 *)(ai + n * 16);
  union { char bytes[16]; int4 words; } column;
  for (uint k = 0; k < 16; k++) column.bytes[k] = bi[k * 16 + n];
  Int8 total;
  for (uint r = 0; r < 8; r++) total[r] = (2 * r + upper) % 8 + 1;
  total = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(1, whole, 1, column.words, total, 0);
  for (uint r = 0; r < 8; r++) c[(2 * r + upper) * 16 + n] = sum[r], ci[(2 * r + upper) * 16 + n] = total[r];
}
