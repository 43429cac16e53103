#include "gpu.h"
/* 16x16x16 on the matrix cores: fragments loaded as the ISA lays them out, float32 and int32 results. */
typedef f16 Half8 __attribute__((ext_vector_type(8)));
typedef float Float8 __attribute__((ext_vector_type(8)));
typedef i32 Int2 __attribute__((ext_vector_type(2)));
typedef i32 Int8 __attribute__((ext_vector_type(8)));
KERNEL matrix_cores(float *c, i32 *ci, const f16 *a, const f16 *b, const i8 *ai, const i8 *bi) {
  u32 lane = thread(), n = lane % 16, upper = lane / 16;
  Half8 left, right;
  for (u32 k = 0; k < 8; k++) left[k] = a[n * 16 + upper * 8 + k], right[k] = b[(upper * 8 + k) * 16 + n];
  Float8 sum = {0, 0, 0, 0, 0, 0, 0, 0};
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(left, right, sum);
  Int2 whole = *(const Int2 *)(ai + n * 16 + upper * 8);
  i8 column[8];
  for (u32 k = 0; k < 8; k++) column[k] = bi[(upper * 8 + k) * 16 + n];
  Int2 other;
  __builtin_memcpy(&other, column, 8);
  Int8 total = {1, 2, 3, 4, 5, 6, 7, 8};
  total = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1, whole, 1, other, total, 0);
  for (u32 r = 0; r < 8; r++) c[(upper * 8 + r) * 16 + n] = sum[r], ci[(upper * 8 + r) * 16 + n] = total[r];
}
