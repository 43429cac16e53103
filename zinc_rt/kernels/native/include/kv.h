// Elements of a cache of keys or values: docs/canonical-1.md, Cached keys and values. Writes round to nearest, ties to
// even; reads are exact. rows/rope.py gives the numbers of the types, in the order of ir.dtypes.CACHE_TYPES.
#pragma once
#include "quants.h"

enum { KV_F32, KV_F16, KV_Q8_0, KV_WIDEST = 2048 };  // KV_WIDEST: head that is rounded in one go, rows/rope.py
enum { KV_BLOCK = 32, KV_BLOCK_BYTES = 34 };         // of q8_0: a half, then 32 int8

INLINE size_t kv_bytes(uint32_t type, size_t n) {
    return type == KV_F32 ? 4 * n : type == KV_F16 ? 2 * n : n / KV_BLOCK * KV_BLOCK_BYTES;
}

// Sixteen floats as halves. Without the instruction: denormals by the spacing of [0.5, 1), which is theirs; others by
// rounding 13 bits away.
INLINE void store_halves16(void *p, f32x16 v) {
#if defined(__F16C__) || defined(__aarch64__)
    *(f16x16u *)p = __builtin_convertvector(v, f16x16u);
#else
    u32x16 bits = (u32x16)v, u = bits & 0x7fffffffu;
    u32x16 small = (u32x16)((f32x16)u + splat(0.5f)) - 0x3f000000u;
    u32x16 usual = (u + 0xfffu + (u >> 13 & 1u) - 0x38000000u) >> 13, nan = 0x7e00u | (u >> 13 & 0x3ffu);
    u32x16 below = (u32x16)(u < 0x38800000u), above = (u32x16)(u >= 0x477ff000u), bad = (u32x16)(u > 0x7f800000u);
    u32x16 half = (small & below) | (usual & ~below);
    half = (0x7c00u & above & ~bad) | (nan & bad) | (half & ~above);
    *(u16x16u *)p = __builtin_convertvector(half | (bits >> 16 & 0x8000u), u16x16u);
#endif
}

// n floats to the elements at `to`, which begin a block.
INLINE void kv_store(uint32_t type, uint8_t *to, const float *x, uint32_t n) {
    if (type == KV_F32) {
        memcpy(to, x, 4 * (size_t)n);
    } else if (type == KV_F16) {
        uint32_t i = 0;
        for (; i + 16 <= n; i += 16) store_halves16(to + 2 * (size_t)i, load16(x + i));
        uint16_t room[16];
        if (i < n) {
            store_halves16(room, load_some(x + i, n - i));
            memcpy(to + 2 * (size_t)i, room, 2 * (size_t)(n - i));
        }
    } else {
        for (uint32_t i = 0; i < n; i += KV_BLOCK, to += KV_BLOCK_BYTES) {
            step s = step_of(x + i, KV_BLOCK, 1);
            uint16_t half[16];
            store_halves16(half, splat_exact(s.d));
            memcpy(to, half, 2);
            quants16(x + i, s, (int8_t *)to + 2);
            quants16(x + i + 16, s, (int8_t *)to + 18);
        }
    }
}

// Elements d .. d + 15 of those at p, which begin a block; d is a multiple of 16.
INLINE f32x16 kv_load16(uint32_t type, const uint8_t *p, uint32_t d) {
    if (type == KV_F32) return load16((const float *)p + d);
    if (type == KV_F16) return halves16(p + 2 * (size_t)d);
    const uint8_t *block = p + d / KV_BLOCK * KV_BLOCK_BYTES;
    f32x16 q = __builtin_convertvector(*(const i8x16u *)(block + 2 + d % KV_BLOCK), f32x16);
    return q * splat_exact(half_at(block));
}

// The first n of them (0 < n < 16); the others are +0. A head of q8_0 has no such rest.
INLINE f32x16 kv_load_some(uint32_t type, const uint8_t *p, uint32_t d, uint32_t n) {
    if (type == KV_F32) return load_some((const float *)p + d, n);
    uint16_t room[16] = {0};
    memcpy(room, p + 2 * (size_t)d, 2 * (size_t)n);
    return halves16(room);
}

// Element d of those at p.
INLINE float kv_at(uint32_t type, const uint8_t *p, uint32_t d) {
    if (type == KV_F32) return ((const float *)p)[d];
    if (type == KV_F16) return half_at(p + 2 * (size_t)d);
    const uint8_t *block = p + d / KV_BLOCK * KV_BLOCK_BYTES;
    return (float)((const int8_t *)block)[2 + d % KV_BLOCK] * half_at(block);
}
