// 128 weights as eight vectors, of the types that have the most models: dequantise.h's values, kept in registers.
#pragma once
#include "blocks.h"
#include "dequantise.h"

// Bytes of 128 weights. Of the types of 256 a half block: a pair of calls has the same `p`, and a different `half`.
INLINE uint32_t bytes128(uint32_t type) { return 128 / block_elements(type) * block_bytes(type); }

// A half as half_at reads it. Through a register of integers: the other way there leaves the compiler to name a vector
// register of its choice as a source, and it may be one that a sum waits in.
INLINE float scale_at(const uint8_t *p) {
#if defined(__F16C__)
    uint16_t h;
    memcpy(&h, p, 2);
    uint32_t bits = h;
    __asm__("" : "+r"(bits));
    return halves8((u16x8)(i32x4){(int32_t)bits, 0, 0, 0})[0];
#else
    return half_at(p);
#endif
}

INLINE f32x16 bytes_times(const uint8_t *q, float d) { return floats(*(const i8x16u *)q) * splat_exact(d); }

INLINE void weights128_q8_0(const uint8_t *p, f32x16 w[8]) {
#pragma unroll
    for (int b = 0; b < 4; b++) {
        float d = scale_at(p + 34 * b);
        w[2 * b] = bytes_times(p + 34 * b + 2, d);
        w[2 * b + 1] = bytes_times(p + 34 * b + 18, d);
    }
}

INLINE void weights128_q4_0(const uint8_t *p, f32x16 w[8]) {
#pragma unroll
    for (int b = 0; b < 4; b++) {
        f32x16 d = splat_exact(scale_at(p + 18 * b));
        u8x16 q = bytes16(p + 18 * b + 2);
        w[2 * b] = floats((i8x16)(q & 15) - 8) * d;
        w[2 * b + 1] = floats((i8x16)(q >> 4) - 8) * d;
    }
}

// d * scale and dmin * minimum of the eight sub-blocks of q4_k and q5_k: both products are exact.
typedef struct {
    float scale[8], minimum[8];
} factors;
INLINE factors factors_of(const uint8_t *p) {
    i16x8 scale, minimum;
    scales_of(p + 4, &scale, &minimum);
    float d = scale_at(p), dmin = scale_at(p + 2);
    f32x8 s = __builtin_convertvector(scale, f32x8) * (f32x8){d, d, d, d, d, d, d, d};
    f32x8 m = __builtin_convertvector(minimum, f32x8) * (f32x8){dmin, dmin, dmin, dmin, dmin, dmin, dmin, dmin};
    factors f;
    memcpy(f.scale, &s, 32);
    memcpy(f.minimum, &m, 32);
    return f;
}

INLINE void weights128_q4_k(const uint8_t *p, int half, f32x16 w[8]) {
    factors f = factors_of(p);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int sub = 4 * half + 2 * i;
        const uint8_t *q = p + 16 + 16 * sub;
        i32x16 q0 = __builtin_convertvector(bytes16(q), i32x16), q1 = __builtin_convertvector(bytes16(q + 16), i32x16);
        w[4 * i] = affine(f.scale[sub], f.minimum[sub], q0);
        w[4 * i + 1] = affine(f.scale[sub], f.minimum[sub], q1);
        w[4 * i + 2] = affine(f.scale[sub + 1], f.minimum[sub + 1], q0 >> 4);
        w[4 * i + 3] = affine(f.scale[sub + 1], f.minimum[sub + 1], q1 >> 4);
    }
}

INLINE void weights128_q5_k(const uint8_t *p, int half, f32x16 w[8]) {
    factors f = factors_of(p);
    u8x16 top0 = bytes16(p + 16), top1 = bytes16(p + 32);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int sub = 4 * half + i;
        const uint8_t *q = p + 48 + 32 * (sub / 2);
        u8x16 q0 = bytes16(q), q1 = bytes16(q + 16);
        u8x16 a = (sub & 1 ? q0 >> 4 : q0 & 15) | (top0 >> (uint8_t)sub & 1) << 4;
        u8x16 b = (sub & 1 ? q1 >> 4 : q1 & 15) | (top1 >> (uint8_t)sub & 1) << 4;
        f32x16 scale = splat_exact(f.scale[sub]), minimum = splat_exact(f.minimum[sub]);
        w[2 * i] = floats_unsigned(a) * scale - minimum;
        w[2 * i + 1] = floats_unsigned(b) * scale - minimum;
    }
}

INLINE void weights128_q6_k(const uint8_t *p, int half, f32x16 w[8]) {
    float d = scale_at(p + 208);
    const uint8_t *q = p + 64 * half, *top = p + 128 + 32 * half;
    f32x16 scale = floats(*(const i8x16u *)(p + 192)) * splat_exact(d);
#pragma unroll
    for (int i = 0; i < 8; i++) {  // runs of 16: the upper half of a byte from i = 4
        u8x16 low = bytes16(q + 16 * (i % 4)), high = bytes16(top + 16 * (i % 2)) >> (uint8_t)(2 * (i / 2)) & 3;
        u8x16 v = (i < 4 ? low & 15 : low >> 4) | high << 4;
        w[i] = floats((i8x16)v - 32) * splat_exact(scale[8 * half + i]);
    }
}

INLINE void weights128(uint32_t type, const uint8_t *p, int half, f32x16 w[8]) {
    switch (type) {
#define X(name) \
    case type_##name: weights128_##name(p, w); return;
        WIDE_BLOCKS32(X)
#undef X
#define X(name) \
    case type_##name: weights128_##name(p, half, w); return;
        WIDE_BLOCKS256(X)
#undef X
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (type == type_f32) w[i] = load16((const float *)p + 16 * i);
        else if (type == type_f16) w[i] = halves16(p + 32 * i);
        else w[i] = (f32x16)(__builtin_convertvector(*(const u16x16u *)(p + 32 * i), u32x16) << 16);
    }
}
