// Types whose quants index a grid of 4 or 8 small integers, to float32. Every product is exact but those with an
// infinite or NaN d, so a sign may stand anywhere in it. grids.py makes the grids of the gguf package's tables.
#pragma once
#include "blocks_small.h"

#pragma GCC visibility push(hidden)  // addressed without a table of addresses
extern const int8_t grid_iq2_xxs[256][8], grid_iq2_xs[512][8], grid_iq2_s[1024][8], grid_iq1_s[2048][8];
extern const int8_t grid_iq3_xxs[256][4], grid_iq3_s[512][4];
#pragma GCC visibility pop

// Seven sign bits; the eighth makes their number even.
INLINE uint32_t even_signs(uint32_t seven) { return seven | ((uint32_t)__builtin_popcount(seven) & 1) << 7; }

// Two runs of 8 integers, of which bit j of `signs` makes element j negative, times d.
INLINE void signed16(const int8_t *first, const int8_t *second, uint32_t signs, float d, float *restrict y) {
    i8x16 q, minus = -(i8x16)spread16(signs);
    memcpy(&q, first, 8);
    memcpy((char *)&q + 8, second, 8);
    store16(y, floats((q ^ minus) - minus) * d);
}

// Four runs of 4.
INLINE void signed16_by_4(const int8_t grid[][4], const uint32_t index[4], uint32_t signs, float d, float *restrict y) {
    int8_t runs[16];
    for (int j = 0; j < 4; j++) memcpy(runs + 4 * j, grid[index[j]], 4);
    signed16(runs, runs + 8, signs, d, y);
}

// d, 8 x (4 indices, 4 x 7 signs and a scale of 4 bits).
INLINE void dequantise_iq2_xxs(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    for (int s = 0; s < 8; s++) {
        const uint8_t *index = block + 2 + 8 * s;
        uint32_t word = word_at(index + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int j = 0; j < 2; j++, word >>= 14) {
            uint32_t signs = even_signs(word & 127) | even_signs(word >> 7 & 127) << 8;
            signed16(grid_iq2_xxs[index[2 * j]], grid_iq2_xxs[index[2 * j + 1]], signs, scale, y + 32 * s + 16 * j);
        }
    }
}

INLINE float scale_iq2(float d, const uint8_t *scales, int s) { return d * (0.5f + (float)(scales[s / 2] >> 4 * (s & 1) & 15)) * 0.25f; }

// d, 32 x (9 bits of index, 7 signs), 16 scales of 4 bits.
INLINE void dequantise_iq2_xs(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    for (int s = 0; s < 16; s++) {
        uint32_t a = short_at(block + 2 + 4 * s), b = short_at(block + 4 + 4 * s);
        uint32_t signs = even_signs(a >> 9) | even_signs(b >> 9) << 8;
        signed16(grid_iq2_xs[a & 511], grid_iq2_xs[b & 511], signs, scale_iq2(d, block + 66, s), y + 16 * s);
    }
}

// d, 32 low bytes of indices, 32 bytes of signs, 32 high bit pairs of indices, 16 scales of 4 bits.
INLINE void dequantise_iq2_s(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    const uint8_t *low = block + 2, *high = block + 66;
    for (int s = 0; s < 16; s++) {
        uint32_t pairs = high[s / 2] >> 4 * (s & 1);
        uint32_t a = low[2 * s] | (pairs & 3) << 8, b = low[2 * s + 1] | (pairs >> 2 & 3) << 8;
        signed16(grid_iq2_s[a], grid_iq2_s[b], short_at(block + 34 + 2 * s), scale_iq2(d, block + 74, s), y + 16 * s);
    }
}

// d, 64 indices, 8 x (4 x 7 signs and a scale of 4 bits).
INLINE void dequantise_iq3_xxs(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    for (int s = 0; s < 8; s++) {
        uint32_t word = word_at(block + 66 + 4 * s);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        for (int j = 0; j < 2; j++, word >>= 14) {
            const uint8_t *q = block + 2 + 8 * s + 4 * j;
            uint32_t index[4] = {q[0], q[1], q[2], q[3]};
            uint32_t signs = even_signs(word & 127) | even_signs(word >> 7 & 127) << 8;
            signed16_by_4(grid_iq3_xxs, index, signs, scale, y + 32 * s + 16 * j);
        }
    }
}

// d, 64 low bytes of indices, their 64 ninth bits, 32 bytes of signs, 8 scales of 4 bits.
INLINE void dequantise_iq3_s(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = block + 2 + 4 * s;
        uint32_t high = block[66 + s / 2] >> 4 * (s & 1), index[4];
        for (int j = 0; j < 4; j++) index[j] = q[j] | (high >> j & 1) << 8;
        float scale = d * (float)(1 + 2 * (block[106 + s / 4] >> 4 * (s >> 1 & 1) & 15));
        signed16_by_4(grid_iq3_s, index, short_at(block + 74 + 2 * s), scale, y + 16 * s);
    }
}

// Two runs of 8, each moved up or down by an eighth, times d.
INLINE void moved16(const int8_t *first, const int8_t *second, uint32_t downs, float d, float *restrict y) {
    f32x16 delta;
    i8x16 q;
    memcpy(&q, first, 8);
    memcpy((char *)&q + 8, second, 8);
    for (int j = 0; j < 16; j++) delta[j] = downs >> j / 8 & 1 ? -0.125f : 0.125f;
    store16(y, (floats(q) + delta) * d);
}

// d, 32 low bytes of indices, 8 x (4 x 3 high bits, a scale of 3 bits, the move's sign).
INLINE void dequantise_iq1_s(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    for (int s = 0; s < 8; s++) {
        uint32_t word = short_at(block + 34 + 2 * s);
        float scale = d * (float)(2 * (word >> 12 & 7) + 1);
        for (int j = 0; j < 4; j += 2) {
            const uint8_t *low = block + 2 + 4 * s + j;
            uint32_t a = low[0] | (word >> 3 * j & 7) << 8, b = low[1] | (word >> (3 * j + 3) & 7) << 8;
            moved16(grid_iq1_s[a], grid_iq1_s[b], word >> 15 ? 3 : 0, scale, y + 32 * s + 8 * j);
        }
    }
}

// 32 low bytes of indices, 32 x (3 high bits, the move's sign), 4 x (4 scales of 3 bits, a quarter of d).
INLINE void dequantise_iq1_m(const uint8_t *restrict block, float *restrict y) {
    uint32_t words[4];
    for (int i = 0; i < 4; i++) words[i] = short_at(block + 48 + 2 * i);
    uint16_t bits = (uint16_t)(words[0] >> 12 | (words[1] >> 12) << 4 | (words[2] >> 12) << 8 | (words[3] >> 12) << 12);
    float d = half_at(&bits);
    for (int s = 0; s < 16; s++) {
        uint32_t high = block[32 + s], a = block[2 * s] | (high & 7) << 8, b = block[2 * s + 1] | (high >> 4 & 7) << 8;
        float scale = d * (float)(2 * (words[s >> 2] >> 3 * (s & 3) & 7) + 1);
        moved16(grid_iq1_s[a], grid_iq1_s[b], (high >> 3 & 1) | (high >> 6 & 2), scale, y + 16 * s);
    }
}
