// Blocks of floats to integers of 8 bits and a scale: docs/canonical-1.md, canonical-1-q8.
#pragma once
#include "vec.h"

typedef struct {
    float factor, d;  // q = rndne(x * factor); both 0, or d NaN, where q is 0
} step;

// float32(float16(v)) of v >= 0, to nearest, ties to even: in float16's denormals by the spacing of [0.5, 1), which
// is theirs, otherwise by rounding 13 bits away.
INLINE float through_half(float v) {
    if (v >= 65520.0f) return __builtin_inff();
    if (v < 0x1p-14f) return (v + 0.5f) - 0.5f;
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

INLINE f32x16 absolute(f32x16 v) { return (f32x16)((u32x16)v & 0x7fffffffu); }

// amax is found among the bits: of non-negative floats they are ordered as their values, NaN above infinity.
INLINE step step_of(const float *x, uint32_t n, int half) {
    u32x16 most = {0};
    for (uint32_t i = 0; i < n; i += 16) {
        u32x16 v = (u32x16)absolute(load16(x + i));
        most = __builtin_elementwise_max(most, v);
    }
    uint32_t bits = __builtin_reduce_max(most);
    float amax;
    memcpy(&amax, &bits, 4);
    if (bits >= 0x7f800000u) return (step){0, __builtin_nanf("")};
    if (amax < 0x1p-100f) return (step){0, 0};
    float d = amax / 127.0f;
    return (step){127.0f / amax, half ? through_half(d) : d};
}

// The sum of the 16 quants.
INLINE int32_t quants16(const float *x, step s, int8_t *q) {
    if (s.factor == 0) {
        memset(q, 0, 16);
        return 0;
    }
    // To nearest, ties to even: |x * factor| <= 127.5, so adding and taking away 1.5 * 2^23 rounds to an integer.
    f32x16 v = load16(x) * splat_exact(s.factor);
    i32x16 i = __builtin_convertvector((v + splat_exact(0x1.8p23f)) - splat_exact(0x1.8p23f), i32x16);
    i8x16 bytes = __builtin_convertvector(i, i8x16);
    memcpy(q, &bytes, 16);
    return __builtin_reduce_add(i);
}
