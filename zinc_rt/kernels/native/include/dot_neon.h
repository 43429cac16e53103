// dot_any.h's functions by arm's dot product extension.
#pragma once
#include <arm_neon.h>

#include "dot_any.h"

#define LOW8 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define HIGH8 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31

INLINE i32x8 neon_join(int32x4_t low, int32x4_t high) {
    return __builtin_shufflevector((i32x4)low, (i32x4)high, 0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE i32x8 neon_dot4(i32x8 acc, i8x32 w, i8x32 x) {
    i32x4 low = __builtin_shufflevector(acc, acc, 0, 1, 2, 3), high = __builtin_shufflevector(acc, acc, 4, 5, 6, 7);
    int32x4_t a = vdotq_s32((int32x4_t)low, (int8x16_t)__builtin_shufflevector(w, w, LOW8), (int8x16_t)__builtin_shufflevector(x, x, LOW8));
    int32x4_t b = vdotq_s32((int32x4_t)high, (int8x16_t)__builtin_shufflevector(w, w, HIGH8), (int8x16_t)__builtin_shufflevector(x, x, HIGH8));
    return neon_join(a, b);
}
INLINE i32x8 neon_dot4_small(i32x8 acc, u8x32 w, i8x32 x) { return neon_dot4(acc, (i8x32)w, x); }
INLINE i32x8 neon_scaled(i32x8 acc, u8x32 w, i8x32 x, i16x16 scale) {
    i32x8 factor = __builtin_convertvector(__builtin_shufflevector(scale, scale, 0, 2, 4, 6, 8, 10, 12, 14), i32x8);
    return acc + factor * neon_dot4((i32x8){0}, (i8x32)w, x);
}

INLINE i32x16 neon_lanes4(i32x16 acc, i8x64 w, const int8_t *x) {
    int32_t v;
    memcpy(&v, x, 4);
    int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(v));
    i32x16 sums;
    for (int q = 0; q < 4; q++) {
        int32x4_t a;
        int8x16_t b;
        memcpy(&a, (const uint8_t *)&acc + 16 * q, 16);
        memcpy(&b, (const uint8_t *)&w + 16 * q, 16);
        a = vdotq_s32(a, b, all);
        memcpy((uint8_t *)&sums + 16 * q, &a, 16);
    }
    return sums;
}
