// How often the dots of this machine differ from dot_any.h's, over n operands one behind the other; and quantise.c's
// rounding.
#include "dot.h"
#include "quantise.c"

#define DIFFERS(a, b) (__builtin_memcmp(&(a), &(b), sizeof(a)) != 0)

// BIAS times what weights of 1 would give is what `dot4` has too much.
EXPORT uint32_t wrong_dot4(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        i8x32 v = *(const i8x32u *)(w + 32 * i), u = *(const i8x32u *)(x + 32 * i), one = (i8x32){0} + 1;
        i32x8 start = {1, -2, 3, 1 << 20, 0, 7, -(1 << 20), 9};
        i32x8 got = dot4(start, v, u), want = any_dot4(start, v, u) + BIAS * any_dot4((i32x8){0}, one, u);
        wrong += DIFFERS(got, want);
    }
    return wrong;
}

EXPORT uint32_t wrong_dot4_small(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        u8x32 v = *(const u8x32u *)(w + 32 * i) & 63;
        i8x32 u = *(const i8x32u *)(x + 32 * i);
        i32x8 got = dot4_small((i32x8){5}, v, u), want = any_dot4((i32x8){5}, (i8x32)v, u);
        wrong += DIFFERS(got, want);
    }
    return wrong;
}

EXPORT uint32_t wrong_scaled(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        u8x32 v = *(const u8x32u *)(w + 32 * i) & 63;
        i8x32 u = *(const i8x32u *)(x + 32 * i);
        int16_t a = w[32 * i + 31], b = w[32 * i];  // -128..127, as q6_k's
        i16x16 scale = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
        i32x8 got = scaled((i32x8){5}, v, u, scale), want = any_scaled((i32x8){5}, v, u, scale);
        wrong += DIFFERS(got, want);
    }
    return wrong;
}

EXPORT uint32_t wrong_dot2(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        i16x16 v = __builtin_convertvector(*(const i8x16u *)(w + 32 * i), i16x16), u = __builtin_convertvector(*(const i8x16u *)(x + 32 * i), i16x16) * 32;
        i16x8 v8 = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), u8 = __builtin_shufflevector(u, u, 8, 9, 10, 11, 12, 13, 14, 15);
        i32x8 got = dot2x16((i32x8){3}, v, u), want = any_dot2x16((i32x8){3}, v, u);
        i32x4 got8 = dot2x8((i32x4){3}, v8, u8), want8 = any_dot2x8((i32x4){3}, v8, u8);
        wrong += DIFFERS(got, want) + DIFFERS(got8, want8);
    }
    return wrong;
}

// n / 2 operands of 64 weights.
EXPORT uint32_t wrong_lanes(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n / 2; i++) {
        i8x64 v, biased, small;
        memcpy(&v, w + 64 * i, 64);
        small = v & 63;
        biased = v ^ (int8_t)BIAS;
        int16_t pair[2] = {(int16_t)(32 * x[64 * i]), (int16_t)(-32 * x[64 * i + 1])};
        i32x16 start = {1, -2, 3}, one = (i32x16)((i8x64){0} + 1);
        i32x16 got = lanes4(start, biased, x + 64 * i), want = any_lanes4(start, v, x + 64 * i) + BIAS * any_lanes4((i32x16){0}, (i8x64)one, x + 64 * i);
        i32x16 got_small = lanes4_small(start, small, x + 64 * i), want_small = any_lanes4(start, small, x + 64 * i);
        i32x16 got2 = lanes2(start, __builtin_convertvector(*(const i8x32u *)(w + 64 * i), i16x32), pair);
        i32x16 want2 = any_lanes2(start, __builtin_convertvector(*(const i8x32u *)(w + 64 * i), i16x32), pair);
        wrong += DIFFERS(got, want) + DIFFERS(got_small, want_small) + DIFFERS(got2, want2);
    }
    return wrong;
}

// A nibble's value by a table, and by arithmetic; scales of every size.
EXPORT uint32_t wrong_affine(const int8_t *w, const int8_t *x, uint32_t n) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) {
        i32x16 v = __builtin_convertvector(*(const i8x16u *)(w + 32 * i), i32x16) & 255;
        float scale = (float)x[32 * i] * 0.0137f, minimum = (float)x[32 * i + 1] * 0x1p-20f;
        f32x16 got = affine(scale, minimum, v), want = any_affine(scale, minimum, v);
        wrong += DIFFERS(got, want);
    }
    return wrong;
}

// n floats through float16 and back, as quantise.c does it.
EXPORT void halved(const float *from, float *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = through_half(from[i]);
}
