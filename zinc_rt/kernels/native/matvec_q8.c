// canonical-1-q8, a row by a token: exact integer dots of blocks, float32 between blocks. docs/canonical-1.md.
//
// Accumulator b mod 32 of block b is a lane of a vector, and the tree adds neighbouring lanes. Lanes behind the last
// block hold +0 and are added all the same: an accumulator is never -0.
#include "dot.h"
#include "projection.h"

#define AHEAD 4096  // bytes between what is read and what is fetched

INLINE void fetch(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + AHEAD + i, 0, 3);
}

// Neighbours' sums within the halves of a, and of b: [a a b b | a a b b].
#define NEIGHBOURS(name, type) \
    INLINE type name(type a, type b) { \
        return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15); \
    }
NEIGHBOURS(neighbours_i, i32x8)
NEIGHBOURS(neighbours_f, f32x8)

// [sums of a's to d's low halves | of their high halves]
INLINE i32x8 sums4(i32x8 a, i32x8 b, i32x8 c, i32x8 d) { return neighbours_i(neighbours_i(a, b), neighbours_i(c, d)); }

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

INLINE float row32(uint32_t type, const uint8_t *p, uint32_t blocks, act32 a) {
    const uint32_t bytes = type == type_q8_0 ? 34 : 18;
    f32x8 acc[4] = {0};
    for (uint32_t b = 0; b < blocks; b += 8, p += 8 * bytes) {
        uint32_t n = blocks - b < 8 ? blocks - b : 8;
        i32x8 v[8] = {0}, minus = {0};
        f32x8 dx = {0};
        _Float16 halves[8] = {0};
        if (n == 8) {
            fetch(p, 8 * bytes);
            for (uint32_t i = 0; i < 8; i++) {
                v[i] = type == type_q8_0 ? block_q8_0(p + i * bytes, a.q + 32 * (b + i)) : block_q4_0(p + i * bytes, a.q + 32 * (b + i));
                memcpy(&halves[i], p + i * bytes, 2);
            }
            minus = *(const i32x8u *)(a.minus + b);
            dx = *(const f32x8u *)(a.d + b);
        } else {
            for (uint32_t i = 0; i < n; i++) {
                v[i] = type == type_q8_0 ? block_q8_0(p + i * bytes, a.q + 32 * (b + i)) : block_q4_0(p + i * bytes, a.q + 32 * (b + i));
                memcpy(&halves[i], p + i * bytes, 2);
            }
            memcpy(&minus, a.minus + b, 4 * n);
            memcpy(&dx, a.d + b, 4 * n);
        }
        f32x8 dw;
        for (int i = 0; i < 8; i++) dw[i] = (float)halves[i];
        f32x8 sums = __builtin_convertvector(sums8(v) + correction(type, minus), f32x8);
        f32x8 *to = &acc[b / 8 % 4];
        *to = *to + sums * (dw * dx);
    }
    // Neighbours, five times. `neighbours_f` leaves halves apart: the last two steps bring them together.
    f32x8 lo = __builtin_shufflevector(acc[0], acc[1], 0, 1, 2, 3, 8, 9, 10, 11), hi = __builtin_shufflevector(acc[0], acc[1], 4, 5, 6, 7, 12, 13, 14, 15);
    f32x8 lo2 = __builtin_shufflevector(acc[2], acc[3], 0, 1, 2, 3, 8, 9, 10, 11), hi2 = __builtin_shufflevector(acc[2], acc[3], 4, 5, 6, 7, 12, 13, 14, 15);
    f32x8 s = neighbours_f(lo, hi), t = neighbours_f(lo2, hi2);  // [0-7 | 8-15], [16-23 | 24-31] in twos
    s = neighbours_f(s, t);                                      // [0-7, 16-23 | 8-15, 24-31] in fours
    s = neighbours_f(s, s);                                      // [0-7, 16-23, ..| 8-15, 24-31, ..]
    return (s[0] + s[4]) + (s[1] + s[5]);
}

// ---- blocks of 256: q4_k, q5_k, q6_k. Four to a vector: [sums | sums by the minimums].

INLINE i16x16 splat16(int16_t v) { return (i16x16){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }
INLINE u8x32 bytes32(const uint8_t *p) { return *(const u8x32u *)p; }
INLINE i32x8 folded(i32x8 sums, i32x4 minimums) {
    i32x4 low = __builtin_shufflevector(sums, sums, 0, 1, 2, 3), high = __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
    i32x4 s = low + high;
    return __builtin_shufflevector(s, minimums, 0, 1, 2, 3, 4, 5, 6, 7);
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

INLINE i32x8 block_q4_k(const uint8_t *block, const int8_t *x, const int16_t *sums) {
    i16x8 scale, minimum;
    scales_of(block + 4, &scale, &minimum);
    i32x8 acc = {0}, other = {0};
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
    for (int h = 0; h < 2; h++) {
        u8x32 q0 = bytes32(block + 64 * h), q1 = bytes32(block + 64 * h + 32), high = bytes32(block + 128 + 32 * h);
        u8x32 w[4] = {(q0 & 15) | (high & 3) << 4, (q1 & 15) | (high >> 2 & 3) << 4, q0 >> 4 | (high >> 4 & 3) << 4,
                      q1 >> 4 | (high >> 6) << 4};
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

INLINE float row256(uint32_t type, const uint8_t *p, uint32_t blocks, act256 a) {
    const uint32_t bytes = type == type_q4_k ? 144 : type == type_q5_k ? 176 : 210, d_at = type == type_q6_k ? 208 : 0;
    f32x8 acc[8] = {0};
    for (uint32_t b = 0; b < blocks; b += 4) {
        uint32_t n = blocks - b < 4 ? blocks - b : 4;
        i32x8 v[4] = {0};
        _Float16 halves[8] = {0};
        f32x4 dx = {0};
        for (uint32_t i = 0; i < 4; i++, p += bytes) {
            if (i == n) break;
            const int8_t *x = a.q + 256 * (b + i);
            fetch(p, bytes);
            v[i] = type == type_q4_k   ? block_q4_k(p, x, a.sums + 8 * (b + i))
                   : type == type_q5_k ? block_q5_k(p, x, a.sums + 8 * (b + i))
                                       : block_q6_k(p, x, a.halves + 16 * (b + i));
            memcpy(&halves[i], p + d_at, 2);
            if (type != type_q6_k) memcpy(&halves[4 + i], p + 2, 2);
            dx[i] = a.d[b + i];
        }
        f32x8 dw;
        for (int i = 0; i < 8; i++) dw[i] = (float)halves[i];
        f32x8 both = __builtin_shufflevector(dx, dx, 0, 1, 2, 3, 4, 5, 6, 7);
        f32x8 *to = &acc[b / 4 % 8];
        *to = *to + __builtin_convertvector(sums4(v[0], v[1], v[2], v[3]), f32x8) * (dw * both);
    }
    f32x8 s = neighbours_f(neighbours_f(acc[0], acc[1]), neighbours_f(acc[2], acc[3]));
    f32x8 t = neighbours_f(neighbours_f(acc[4], acc[5]), neighbours_f(acc[6], acc[7]));
    s = neighbours_f(s, t);
    s = neighbours_f(s, s);
    s = neighbours_f(s, s);
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
    case type_q8_0: by_rows32(type_q8_0, j); return;
    case type_q4_0: by_rows32(type_q4_0, j); return;
    case type_q4_k: by_rows256(type_q4_k, j); return;
    case type_q5_k: by_rows256(type_q5_k, j); return;
    case type_q6_k: by_rows256(type_q6_k, j); return;
    }
}
