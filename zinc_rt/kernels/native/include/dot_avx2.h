// dot_any.h's functions by AVX2, and by AVX-VNNI where the CPU has it.
#pragma once
#include <immintrin.h>

#include "dot_any.h"

// maddubs multiplies unsigned by signed bytes and saturates a pair's sum: |w| <= 128 and |x| <= 127 give 32512 at most.
INLINE __m256i avx2_products(__m256i w, __m256i x) { return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)); }

INLINE i32x8 avx2_dot4(i32x8 acc, i8x32 w, i8x32 x) {
    return acc + (i32x8)_mm256_madd_epi16(avx2_products((__m256i)w, (__m256i)x), _mm256_set1_epi16(1));
}
INLINE i32x8 avx2_dot4_small(i32x8 acc, u8x32 w, i8x32 x) {
    return acc + (i32x8)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x), _mm256_set1_epi16(1));
}
INLINE i32x8 avx2_scaled(i32x8 acc, u8x32 w, i8x32 x, i16x16 scale) {
    return acc + (i32x8)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x), (__m256i)scale);
}
INLINE i32x4 avx2_dot2x8(i32x4 acc, i16x8 a, i16x8 b) { return acc + (i32x4)_mm_madd_epi16((__m128i)a, (__m128i)b); }
INLINE i32x8 avx2_dot2x16(i32x8 acc, i16x16 a, i16x16 b) {
    return acc + (i32x8)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

INLINE __m256i avx2_all(const void *x) {
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}
INLINE i32x16 avx2_both(i32x16 acc, __m256i low, __m256i high) {
    return acc + __builtin_shufflevector((i32x8)low, (i32x8)high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE __m256i avx2_half(const void *v, int which) {
    __m256i half;
    memcpy(&half, (const uint8_t *)v + 32 * which, 32);
    return half;
}
INLINE i32x16 avx2_lanes4(i32x16 acc, i8x64 w, const int8_t *x) {
    __m256i all = avx2_all(x), one = _mm256_set1_epi16(1);
    return avx2_both(acc, _mm256_madd_epi16(avx2_products(avx2_half(&w, 0), all), one),
                     _mm256_madd_epi16(avx2_products(avx2_half(&w, 1), all), one));
}
INLINE i32x16 avx2_lanes4_small(i32x16 acc, i8x64 w, const int8_t *x) {
    __m256i all = avx2_all(x), one = _mm256_set1_epi16(1);
    return avx2_both(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(avx2_half(&w, 0), all), one),
                     _mm256_madd_epi16(_mm256_maddubs_epi16(avx2_half(&w, 1), all), one));
}
INLINE i32x16 avx2_lanes2(i32x16 acc, i16x32 w, const int16_t *x) {
    __m256i all = avx2_all(x);
    return avx2_both(acc, _mm256_madd_epi16(avx2_half(&w, 0), all), _mm256_madd_epi16(avx2_half(&w, 1), all));
}
