// What projections read in blocks of weights, and how they fetch ahead.
#pragma once
#include "dot.h"

typedef uint16_t u16x8 __attribute__((vector_size(16)));

#define AHEAD 4096  // bytes between what is read and what is fetched

INLINE void fetch(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + AHEAD + i, 0, 3);
}

INLINE u8x32 bytes32(const uint8_t *p) { return *(const u8x32u *)p; }

INLINE f32x8 halves8(u16x8 h) {
#if defined(__F16C__) || defined(__aarch64__)
    typedef _Float16 f16x8 __attribute__((vector_size(16)));
    return __builtin_convertvector((f16x8)h, f32x8);
#else
    uint16_t room[16] = {0};
    memcpy(room, &h, 16);
    f32x16 v = halves16(room);
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}

// The eight scales and minimums of q4_k and q5_k: six bits each.
INLINE void scales_of(const uint8_t *p, i16x8 *scale, i16x8 *minimum) {
    uint32_t a, b, c;
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    memcpy(&c, p + 8, 4);
    uint32_t s[2] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)};
    uint32_t m[2] = {b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
    typedef uint8_t u8x8 __attribute__((vector_size(8)));
    u8x8 s8, m8;
    memcpy(&s8, s, 8);
    memcpy(&m8, m, 8);
    *scale = __builtin_convertvector(s8, i16x8);
    *minimum = __builtin_convertvector(m8, i16x8);
}
