// canonical-1-q8, a row by a token: exact integer dots of blocks, float32 between blocks. docs/canonical-1.md.
//
// Accumulator b mod 32 of block b is a lane of a vector, and the tree adds neighbouring lanes. Lanes behind the last
// block hold +0 and are added all the same: an accumulator is never -0.
#include "blocks.h"
#include "projection.h"

// Neighbours' sums within the halves of a, and of b: [a a b b | a a b b].
INLINE f32x8 neighbours(f32x8 a, f32x8 b) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

// [sums of a's to d's low halves | of their high halves]. Of integers, in any order: by unpacking, which costs less
// than horizontal adds.
INLINE i32x8 sums4(i32x8 a, i32x8 b, i32x8 c, i32x8 d) {
    i32x8 ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    i32x8 cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13) + __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    return __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
}

// The sum of each of eight vectors.
INLINE i32x8 sums8(const i32x8 v[8]) {
    i32x8 a = sums4(v[0], v[1], v[2], v[3]), b = sums4(v[4], v[5], v[6], v[7]);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

// ---- blocks of 32: q8_0, q4_0. Eight to a vector.

INLINE i32x8 block_q8_0(const uint8_t *block, const int8_t *x) {
    return dot4((i32x8){0}, *(const i8x32u *)(block + 2), *(const i8x32u *)x);
}
INLINE i32x8 block_q4_0(const uint8_t *block, const int8_t *x) {
    u8x16 q = *(const u8x16u *)(block + 2), low = q & 15, high = q >> 4;
    u8x32 w = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                      21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    return dot4_small((i32x8){0}, w, *(const i8x32u *)x);
}

// What is to be added to the integer sums: q8_0's dot is too large by BIAS * sum(x), q4_0's by 8 * sum(x).
INLINE i32x8 correction(uint32_t type, i32x8 minus) {
    if (type == type_q4_0) return minus >> 4;
    return BIAS ? minus : minus & 0;
}

INLINE i32x8 dot32(uint32_t type, const uint8_t *block, const int8_t *x) {
    return type == type_q8_0 ? block_q8_0(block, x) : block_q4_0(block, x);
}

// What eight blocks from block b add to their accumulators.
INLINE f32x8 group32(uint32_t type, const uint8_t *p, act32 a, uint32_t b) {
    const uint32_t bytes = block_bytes(type);
    fetch(p, 8 * bytes);
    i32x8 v[8];
    uint16_t d[8];
    for (uint32_t i = 0; i < 8; i++) {
        v[i] = dot32(type, p + i * bytes, a.q + 32 * (b + i));
        memcpy(&d[i], p + i * bytes, 2);
    }
    i32x8 sums = sums8(v) + correction(type, *(const i32x8u *)(a.minus + b));
    f32x8 dw = halves8((u16x8){d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]});
    return __builtin_convertvector(sums, f32x8) * (dw * *(const f32x8u *)(a.d + b));
}

// The same of the last n < 8 blocks; +0 for those that are not there.
INLINE f32x8 rest32(uint32_t type, const uint8_t *p, act32 a, uint32_t b, uint32_t n) {
    const uint32_t bytes = block_bytes(type);
    i32x8 v[8] = {0}, minus = {0};
    uint16_t d[8] = {0};
    f32x8 dx = {0};
    for (uint32_t i = 0; i < n; i++) {
        v[i] = dot32(type, p + i * bytes, a.q + 32 * (b + i));
        memcpy(&d[i], p + i * bytes, 2);
    }
    memcpy(&minus, a.minus + b, 4 * n);
    memcpy(&dx, a.d + b, 4 * n);
    f32x8 dw = halves8((u16x8){d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]});
    return __builtin_convertvector(sums8(v) + correction(type, minus), f32x8) * (dw * dx);
}

INLINE float row32(uint32_t type, const uint8_t *p, uint32_t blocks, act32 a) {
    const uint32_t bytes = block_bytes(type);
    f32x8 acc[4] = {0};
    uint32_t b = 0;
    for (; b + 32 <= blocks; b += 32, p += 32 * bytes) {
#pragma unroll
        for (int j = 0; j < 4; j++) acc[j] = acc[j] + group32(type, p + j * 8 * bytes, a, b + j * 8);
    }
#pragma unroll
    for (int j = 0; j < 4; j++, b += 8, p += 8 * bytes) {
        if (b + 8 <= blocks) acc[j] = acc[j] + group32(type, p, a, b);
        else if (b < blocks) acc[j] = acc[j] + rest32(type, p, a, b, blocks - b);
    }
    // Neighbours, five times. `neighbours` leaves halves apart: the last two steps bring them together.
    f32x8 lo = __builtin_shufflevector(acc[0], acc[1], 0, 1, 2, 3, 8, 9, 10, 11), hi = __builtin_shufflevector(acc[0], acc[1], 4, 5, 6, 7, 12, 13, 14, 15);
    f32x8 lo2 = __builtin_shufflevector(acc[2], acc[3], 0, 1, 2, 3, 8, 9, 10, 11), hi2 = __builtin_shufflevector(acc[2], acc[3], 4, 5, 6, 7, 12, 13, 14, 15);
    f32x8 s = neighbours(lo, hi), t = neighbours(lo2, hi2);  // [0-7 | 8-15], [16-23 | 24-31] in twos
    s = neighbours(s, t);                                      // [0-7, 16-23 | 8-15, 24-31] in fours
    s = neighbours(s, s);                                      // [0-7, 16-23, ..| 8-15, 24-31, ..]
    return (s[0] + s[4]) + (s[1] + s[5]);
}

// ---- blocks of 256: q4_k, q5_k, q6_k. Four to a vector: [sums | sums by the minimums].

INLINE i16x16 splat16(int16_t v) { return (i16x16){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }
INLINE i32x8 folded(i32x8 sums, i32x4 minimums) {
    i32x4 low = __builtin_shufflevector(sums, sums, 0, 1, 2, 3), high = __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
    i32x4 s = low + high;
    return __builtin_shufflevector(s, minimums, 0, 1, 2, 3, 4, 5, 6, 7);
}

INLINE i32x8 block_q4_k(const uint8_t *block, const int8_t *x, const int16_t *sums) {
    i16x8 scale, minimum;
    scales_of(block + 4, &scale, &minimum);
    i32x8 acc = {0}, other = {0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u8x32 q = bytes32(block + 16 + 32 * i);
        acc = scaled(acc, q & 15, *(const i8x32u *)(x + 64 * i), splat16(scale[2 * i]));
        other = scaled(other, q >> 4, *(const i8x32u *)(x + 64 * i + 32), splat16(scale[2 * i + 1]));
    }
    return folded(acc + other, dot2x8((i32x4){0}, minimum, *(const i16x8u *)sums));
}

INLINE i32x8 block_q5_k(const uint8_t *block, const int8_t *x, const int16_t *sums) {
    i16x8 scale, minimum;
    scales_of(block + 4, &scale, &minimum);
    u8x32 high = bytes32(block + 16);
    i32x8 acc = {0}, other = {0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u8x32 q = bytes32(block + 48 + 32 * i);
        u8x32 a = (q & 15) | (high >> (uint8_t)(2 * i) & 1) << 4, b = q >> 4 | (high >> (uint8_t)(2 * i + 1) & 1) << 4;
        acc = scaled(acc, a, *(const i8x32u *)(x + 64 * i), splat16(scale[2 * i]));
        other = scaled(other, b, *(const i8x32u *)(x + 64 * i + 32), splat16(scale[2 * i + 1]));
    }
    return folded(acc + other, dot2x8((i32x4){0}, minimum, *(const i16x8u *)sums));
}

INLINE i32x8 block_q6_k(const uint8_t *block, const int8_t *x, const int16_t *halves) {
    i16x16 scale = __builtin_convertvector(*(const i8x16u *)(block + 192), i16x16);
    i32x8 acc = {0}, other = {0};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u8x32 q0 = bytes32(block + 64 * h), q1 = bytes32(block + 64 * h + 32), high = bytes32(block + 128 + 32 * h);
        u8x32 w[4] = {(q0 & 15) | (high & 3) << 4, (q1 & 15) | (high >> 2 & 3) << 4, q0 >> 4 | (high >> 4 & 3) << 4,
                      q1 >> 4 | (high >> 6) << 4};
#pragma unroll
        for (int s = 0; s < 4; s++) {
            int16_t a = scale[8 * h + 2 * s], b = scale[8 * h + 2 * s + 1];
            i16x16 both = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
            i32x8 *to = s & 1 ? &other : &acc;
            *to = scaled(*to, w[s], *(const i8x32u *)(x + 128 * h + 32 * s), both);
        }
    }
    // Weights were 32 too large.
    i32x8 over = dot2x16((i32x8){0}, scale, *(const i16x16u *)halves);
    return folded(acc + other - (over << 5), (i32x4){0});
}

INLINE i32x8 dot256(uint32_t type, const uint8_t *block, act256 a, uint32_t b) {
    const int8_t *x = a.q + 256 * b;
    return type == type_q4_k   ? block_q4_k(block, x, a.sums + 8 * b)
           : type == type_q5_k ? block_q5_k(block, x, a.sums + 8 * b)
                               : block_q6_k(block, x, a.halves + 16 * b);
}

// What n <= 4 blocks from block b add to their accumulators, [sums | sums by the minimums].
INLINE f32x8 group256(uint32_t type, const uint8_t *p, act256 a, uint32_t b, const uint32_t n) {
    const uint32_t bytes = block_bytes(type), d_at = type == type_q6_k ? 208 : 0;
    i32x8 v[4] = {0};
    uint16_t d[4] = {0}, dmin[4] = {0};
    float dx[4] = {0};
    fetch(p, n * bytes);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        v[i] = dot256(type, p + i * bytes, a, b + i);
        memcpy(&d[i], p + i * bytes + d_at, 2);
        if (type != type_q6_k) memcpy(&dmin[i], p + i * bytes + 2, 2);
        dx[i] = a.d[b + i];
    }
    f32x8 dw = halves8((u16x8){d[0], d[1], d[2], d[3], dmin[0], dmin[1], dmin[2], dmin[3]});
    f32x8 both = {dx[0], dx[1], dx[2], dx[3], dx[0], dx[1], dx[2], dx[3]};
    return __builtin_convertvector(sums4(v[0], v[1], v[2], v[3]), f32x8) * (dw * both);
}

INLINE float row256(uint32_t type, const uint8_t *p, uint32_t blocks, act256 a) {
    const uint32_t bytes = block_bytes(type);
    f32x8 acc[8] = {0};
    uint32_t b = 0;
    for (; b + 4 <= blocks; b += 4, p += 4 * bytes) acc[b / 4 % 8] = acc[b / 4 % 8] + group256(type, p, a, b, 4);
    f32x8 *last = &acc[b / 4 % 8];
    switch (blocks - b) {
    case 1: *last = *last + group256(type, p, a, b, 1); break;
    case 2: *last = *last + group256(type, p, a, b, 2); break;
    case 3: *last = *last + group256(type, p, a, b, 3); break;
    }
    // Vectors that no block reached hold +0, and adding those changes nothing.
    uint32_t used = blocks > 16 ? 8 : blocks > 8 ? 4 : blocks > 4 ? 2 : 1;
    for (; used > 1; used /= 2)
        for (uint32_t i = 0; i < used / 2; i++) acc[i] = neighbours(acc[2 * i], acc[2 * i + 1]);
    f32x8 s = neighbours(acc[0], acc[0]);
    s = neighbours(s, s);
    return s[0] - s[4];
}

INLINE void by_rows32(uint32_t type, const job *j) {
    for (uint32_t r = j->first; r < j->last; r++)
        for (uint32_t t = 0; t < j->n; t++)
            put(j, t, r, row32(type, j->w + r * j->row_bytes, j->k / 32, act32_at(j->x[t], j->k)));
}
INLINE void by_rows256(uint32_t type, const job *j) {
    for (uint32_t r = j->first; r < j->last; r++)
        for (uint32_t t = 0; t < j->n; t++)
            put(j, t, r, row256(type, j->w + r * j->row_bytes, j->k / 256, act256_at(j->x[t], j->k)));
}

void rows_q8(const job *j) {
    switch (j->type) {
#define X(name, block, tokens) \
    case type_##name: by_rows##block(type_##name, j); return;
        Q8_TYPES(X)
#undef X
    }
}
