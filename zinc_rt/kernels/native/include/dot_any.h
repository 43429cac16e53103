// Dots of bytes, 32 at a time, on any machine. dot_avx2.h, dot_avx512.h and dot_neon.h have the same functions by
// other means; tests hold each against these. All are exact: w is -128..127 or 0..127 as each says, x -127..127.
#pragma once
#include "vec.h"

typedef int8_t i8x32 __attribute__((vector_size(32)));
typedef int8_t i8x32u __attribute__((vector_size(32), aligned(1)));
typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef uint8_t u8x32u __attribute__((vector_size(32), aligned(1)));
typedef int8_t i8x64 __attribute__((vector_size(64)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int16_t i16x8u __attribute__((vector_size(16), aligned(2)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef int16_t i16x16u __attribute__((vector_size(32), aligned(2)));
typedef int16_t i16x32 __attribute__((vector_size(64)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8u __attribute__((vector_size(32), aligned(4)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4)));

// Sums of neighbours of 16-bit products: |w * x| <= 16256, so a pair needs 32 bits.
INLINE i32x8 any_pairs(i16x16 p) {
    i32x8 even = __builtin_convertvector(__builtin_shufflevector(p, p, 0, 2, 4, 6, 8, 10, 12, 14), i32x8);
    i32x8 odd = __builtin_convertvector(__builtin_shufflevector(p, p, 1, 3, 5, 7, 9, 11, 13, 15), i32x8);
    return even + odd;
}

// acc[i] + the sum of products 4i .. 4i + 3.
INLINE i32x8 any_dot4(i32x8 acc, i8x32 w, i8x32 x) {
    i16x32 p = __builtin_convertvector(w, i16x32) * __builtin_convertvector(x, i16x32);
    i32x8 a = any_pairs(__builtin_shufflevector(p, p, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    i32x8 b = any_pairs(__builtin_shufflevector(p, p, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
    return acc + __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

// The same of w that is 0..127.
INLINE i32x8 any_dot4_small(i32x8 acc, u8x32 w, i8x32 x) { return any_dot4(acc, (i8x32)w, x); }

// acc[i] + the sum of products 4i .. 4i + 3, times scale: scale[2i] and scale[2i + 1] are equal. w is 0..63.
INLINE i32x8 any_scaled(i32x8 acc, u8x32 w, i8x32 x, i16x16 scale) {
    i32x8 factor = __builtin_convertvector(__builtin_shufflevector(scale, scale, 0, 2, 4, 6, 8, 10, 12, 14), i32x8);
    return acc + factor * any_dot4((i32x8){0}, (i8x32)w, x);
}

// Lane i of 16: acc[i] + w[4i] * x[0] + .. + w[4i + 3] * x[3].
INLINE i32x16 any_lanes4(i32x16 acc, i8x64 w, const int8_t *x) {
    i32x16 lanes = (i32x16)w;
    for (int b = 0; b < 4; b++) acc = acc + (lanes << (24 - 8 * b) >> 24) * (int32_t)x[b];
    return acc;
}
// The same of w that is 0..127.
INLINE i32x16 any_lanes4_small(i32x16 acc, i8x64 w, const int8_t *x) { return any_lanes4(acc, w, x); }

// Lane i of 16: acc[i] + w[2i] * x[0] + w[2i + 1] * x[1].
INLINE i32x16 any_lanes2(i32x16 acc, i16x32 w, const int16_t *x) {
    i32x16 lanes = (i32x16)w;
    return acc + (lanes << 16 >> 16) * (int32_t)x[0] + (lanes >> 16) * (int32_t)x[1];
}

// scale * q - minimum of each lane's low nibble q, both operations rounded.
INLINE f32x16 any_affine(float scale, float minimum, i32x16 v) {
    return __builtin_convertvector(v & 15, f32x16) * splat_exact(scale) - splat_exact(minimum);
}

// acc[i] + the sum of products 2i, 2i + 1.
INLINE i32x4 any_dot2x8(i32x4 acc, i16x8 a, i16x8 b) {
    i32x8 p = __builtin_convertvector(a, i32x8) * __builtin_convertvector(b, i32x8);
    return acc + __builtin_shufflevector(p, p, 0, 2, 4, 6) + __builtin_shufflevector(p, p, 1, 3, 5, 7);
}
INLINE i32x8 any_dot2x16(i32x8 acc, i16x16 a, i16x16 b) {
    i32x16 p = __builtin_convertvector(a, i32x16) * __builtin_convertvector(b, i32x16);
    return acc + __builtin_shufflevector(p, p, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(p, p, 1, 3, 5, 7, 9, 11, 13, 15);
}
