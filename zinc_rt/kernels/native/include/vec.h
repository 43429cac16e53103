// Vectors, halves, canonical-1's tree and dot. docs/canonical-1.md defines every result.
//
// Vector types of the compiler, 16 floats wide on every machine: it lowers them to what the machine has. Loads and
// stores through the `u` types need no alignment. Never read past an operand's end: weights may be the last bytes
// of a mapped file.
#pragma once
#pragma STDC FP_CONTRACT OFF
#include <stddef.h>
#include <stdint.h>

#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define INLINE static inline __attribute__((always_inline))

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16u __attribute__((vector_size(64), aligned(4)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16u __attribute__((vector_size(16), aligned(1)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x16u __attribute__((vector_size(16), aligned(1)));
typedef _Float16 f16x16u __attribute__((vector_size(32), aligned(2)));
typedef uint16_t u16x16u __attribute__((vector_size(32), aligned(2)));

INLINE f32x16 load16(const float *p) { return *(const f32x16u *)p; }
INLINE void store16(float *p, f32x16 v) { *(f32x16u *)p = v; }
INLINE f32x16 splat(float v) { return (f32x16){0} + v; }  // +0 + v: -0 becomes +0; use splat_exact where it matters
INLINE f32x16 splat_exact(float v) { return (f32x16){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }

// The first n of 16 (0 < n < 16); the others are +0.
INLINE f32x16 load_some(const float *p, uint32_t n) {
    f32x16 v = {0};
    memcpy(&v, p, 4 * n);
    return v;
}
INLINE void store_some(float *p, f32x16 v, uint32_t n) { memcpy(p, &v, 4 * n); }

// Sixteen halves, exactly. A machine without the instruction would call a library for it: there, the bits move to
// float32's places and 2^112 corrects the exponent (denormals too), all ones in it stay all ones.
INLINE f32x16 halves16(const void *p) {
#if defined(__F16C__) || defined(__aarch64__)
    return __builtin_convertvector(*(const f16x16u *)p, f32x16);
#else
    u32x16 bits = __builtin_convertvector(*(const u16x16u *)p, u32x16), magnitude = (bits & 0x7fff) << 13;
    u32x16 value = (u32x16)((f32x16)magnitude * 0x1p112f) | ((u32x16)(magnitude >= 0x0f800000) & 0x7f800000);
    return (f32x16)(value | (bits & 0x8000) << 16);
#endif
}

INLINE float half_at(const void *p) {
#if defined(__F16C__) || defined(__aarch64__)
    _Float16 h;
    memcpy(&h, p, 2);
    return (float)h;
#else
    uint16_t room[16] = {0};
    memcpy(room, p, 2);
    return halves16(room)[0];
#endif
}

// Sums of neighbours: a's eight, then b's.
INLINE f32x16 pairs(f32x16 a, f32x16 b) {
    f32x16 even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    f32x16 odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return even + odd;
}

// canonical-1's tree over the 128 accumulators of a dot: seven times, add neighbours.
INLINE float tree128(const f32x16 a[8]) {
    f32x16 p = pairs(pairs(a[0], a[1]), pairs(a[2], a[3])), q = pairs(pairs(a[4], a[5]), pairs(a[6], a[7]));
    f32x16 r = pairs(p, q);
    r = pairs(r, r);
    r = pairs(r, r);
    r = pairs(r, r);
    r = pairs(r, r);
    return r[0];
}

// canonical-1's dot of k floats. Padding with +0 in both operands changes no bit.
INLINE float dot(const float *a, const float *b, uint32_t k) {
    f32x16 acc[8];
    for (int j = 0; j < 8; j++) acc[j] = (f32x16){0};
    uint32_t i = 0;
    for (; i + 128 <= k; i += 128)
        for (int j = 0; j < 8; j++) acc[j] = acc[j] + load16(a + i + 16 * j) * load16(b + i + 16 * j);
    for (int j = 0; i < k; i += 16, j++) {
        uint32_t n = k - i < 16 ? k - i : 16;
        f32x16 x = n < 16 ? load_some(a + i, n) : load16(a + i), y = n < 16 ? load_some(b + i, n) : load16(b + i);
        acc[j] = acc[j] + x * y;
    }
    return tree128(acc);
}
