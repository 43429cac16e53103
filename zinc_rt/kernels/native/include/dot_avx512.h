// dot_any.h's functions by AVX-512 VNNI. Vectors of 32 bytes for rows: as fast as 64 where a CPU has two pipes of 256
// bits, faster where it has three.
#pragma once
#include <immintrin.h>

#include "dot_any.h"

// Unsigned w + 128 by signed x: the sum is too large by 128 * sum(x).
INLINE i32x8 avx512_dot4_biased(i32x8 acc, i8x32 w, i8x32 x) {
    __m256i biased = _mm256_xor_si256((__m256i)w, _mm256_set1_epi8((char)0x80));
    return (i32x8)_mm256_dpbusd_epi32((__m256i)acc, biased, (__m256i)x);
}
INLINE i32x8 avx512_dot4_small(i32x8 acc, u8x32 w, i8x32 x) {
    return (i32x8)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
}
INLINE i32x8 avx512_scaled(i32x8 acc, u8x32 w, i8x32 x, i16x16 scale) {
    return (i32x8)_mm256_dpwssd_epi32((__m256i)acc, _mm256_maddubs_epi16((__m256i)w, (__m256i)x), (__m256i)scale);
}
INLINE i32x4 avx512_dot2x8(i32x4 acc, i16x8 a, i16x8 b) {
    return (i32x4)_mm_dpwssd_epi32((__m128i)acc, (__m128i)a, (__m128i)b);
}
INLINE i32x8 avx512_dot2x16(i32x8 acc, i16x16 a, i16x16 b) {
    return (i32x8)_mm256_dpwssd_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
}

INLINE __m512i avx512_all(const void *x) {
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}
// Of weights that were stored with 128 added.
INLINE i32x16 avx512_lanes4(i32x16 acc, i8x64 w, const int8_t *x) {
    return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, avx512_all(x));
}
INLINE i32x16 avx512_lanes2(i32x16 acc, i16x32 w, const int16_t *x) {
    return (i32x16)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)w, avx512_all(x));
}
// The 16 values there are make one vector, and a permutation ignores all but the nibble.
INLINE f32x16 avx512_affine(float scale, float minimum, i32x16 v) {
    const f32x16 each = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    f32x16 table = each * splat_exact(scale) - splat_exact(minimum);
    return (f32x16)_mm512_permutexvar_ps((__m512i)v, (__m512)table);
}
