// Types of 256-element blocks (K-quants, iq4_xs, ternary ones) to float32, rounded where gguf/quants.py rounds.
#pragma once
#include "blocks_small.h"

// 16 scales and minimums of 4 bits, 64 bytes of bit pairs, d, dmin. weight = d * scale * q - dmin * minimum.
INLINE void dequantise_q2_k(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block + 80), dmin = half_at(block + 82);
    for (int s = 0; s < 16; s++) {  // halves of 128 elements: four bit pairs, two runs of 16 bytes
        u8x16 q = bytes16(block + 16 + 32 * (s >> 3) + 16 * (s & 1)) >> (uint8_t)(2 * (s >> 1 & 3)) & 3;
        float scale = d * (float)(block[s] & 15), minimum = dmin * (float)(block[s] >> 4);
        store16(y + 16 * s, floats_unsigned(q) * scale - minimum);
    }
}

// 32 bytes of third bits (0: minus 4), 64 bytes of bit pairs, 16 scales of 6 bits in 12 bytes, d.
INLINE void dequantise_q3_k(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block + 108);
    const uint8_t *scales = block + 96;
    for (int s = 0; s < 16; s++) {
        u8x16 q = bytes16(block + 32 + 32 * (s >> 3) + 16 * (s & 1)) >> (uint8_t)(2 * (s >> 1 & 3)) & 3;
        u8x16 high = bytes16(block + 16 * (s & 1)) >> (uint8_t)(s >> 1) & 1;
        int scale = (scales[s & 7] >> (s & 8 ? 4 : 0) & 15) | (scales[8 + (s & 3)] >> 2 * (s >> 2) & 3) << 4;
        store16(y + 16 * s, floats((i8x16)(q | high << 2) - 4) * (d * (float)(scale - 32)));
    }
}

typedef struct {
    uint8_t scale[8], minimum[8];
} scales_k4;

// 12 bytes -> 8 scales, 8 minimums of 6 bits: ggml-quants.c get_scale_min_k4.
INLINE scales_k4 scales_k4_at(const uint8_t *p) {
    uint32_t a = word_at(p), b = word_at(p + 4), c = word_at(p + 8);
    uint32_t words[4] = {
        a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
    scales_k4 s;
    memcpy(&s, words, 16);
    return s;
}

// d, dmin, scales, 4 x 32 bytes of nibbles: low ones a sub-block, high ones the next.
INLINE void dequantise_q4_k(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block), dmin = half_at(block + 2);
    scales_k4 sc = scales_k4_at(block + 4);
    for (int p = 0; p < 4; p++) {
        u8x16 q0 = bytes16(block + 16 + 32 * p), q1 = bytes16(block + 32 + 32 * p);
        float scale = d * (float)sc.scale[2 * p], minimum = dmin * (float)sc.minimum[2 * p];
        store16(y + 64 * p, floats_unsigned(q0 & 15) * scale - minimum);
        store16(y + 64 * p + 16, floats_unsigned(q1 & 15) * scale - minimum);
        scale = d * (float)sc.scale[2 * p + 1], minimum = dmin * (float)sc.minimum[2 * p + 1];
        store16(y + 64 * p + 32, floats_unsigned(q0 >> 4) * scale - minimum);
        store16(y + 64 * p + 48, floats_unsigned(q1 >> 4) * scale - minimum);
    }
}

// As q4_k, with 32 bytes of fifth bits before the nibbles: bit s for sub-block s.
INLINE void dequantise_q5_k(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block), dmin = half_at(block + 2);
    scales_k4 sc = scales_k4_at(block + 4);
    u8x16 high0 = bytes16(block + 16), high1 = bytes16(block + 32);
    for (int p = 0; p < 4; p++) {
        u8x16 q0 = bytes16(block + 48 + 32 * p), q1 = bytes16(block + 64 + 32 * p);
        uint8_t s = (uint8_t)(2 * p);
        float scale = d * (float)sc.scale[s], minimum = dmin * (float)sc.minimum[s];
        store16(y + 64 * p, floats_unsigned((q0 & 15) | (high0 >> s & 1) << 4) * scale - minimum);
        store16(y + 64 * p + 16, floats_unsigned((q1 & 15) | (high1 >> s & 1) << 4) * scale - minimum);
        s++;
        scale = d * (float)sc.scale[s], minimum = dmin * (float)sc.minimum[s];
        store16(y + 64 * p + 32, floats_unsigned(q0 >> 4 | (high0 >> s & 1) << 4) * scale - minimum);
        store16(y + 64 * p + 48, floats_unsigned(q1 >> 4 | (high1 >> s & 1) << 4) * scale - minimum);
    }
}

// 128 bytes of nibbles, 64 bytes of high bit pairs, 16 signed scales, d. In halves of 128 elements: two runs of 32
// low nibbles, two of high ones; four bit pairs of 32 bytes.
INLINE void dequantise_q6_k(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block + 208);
    const int8_t *scales = (const int8_t *)block + 192;
    for (int s = 0; s < 16; s++) {
        int half = s >> 3, run = s >> 1 & 3, part = 16 * (s & 1);
        u8x16 low = bytes16(block + 64 * half + 32 * (run & 1) + part) >> (uint8_t)(run & 2 ? 4 : 0) & 15;
        u8x16 high = bytes16(block + 128 + 32 * half + part) >> (uint8_t)(2 * run) & 3;
        store16(y + 16 * s, floats((i8x16)(low | high << 4) - 32) * (d * (float)scales[s]));
    }
}

// d, 16 high bits and 4 bytes of low nibbles of 8 scales, 8 x 16 bytes of nibbles that index iq4_nl's table.
INLINE void dequantise_iq4_xs(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    uint32_t high = short_at(block + 2);
    for (int s = 0; s < 8; s++) {
        int scale = (int)((block[4 + s / 2] >> 4 * (s & 1) & 15u) | (high >> 2 * s & 3) << 4) - 32;
        from_table(IQ4_VALUES, block + 8 + 16 * s, d * (float)scale, y + 32 * s);
    }
}

// Base 3, most significant digit first, as a fraction of 256: the digit is what thrice the byte overflows by.
INLINE i8x16 ternary(u8x16 q, uint8_t power) {
    typedef uint16_t u16x16 __attribute__((vector_size(32)));
    u16x16 digit = __builtin_convertvector(q * power, u16x16) * 3 >> 8;
    return __builtin_convertvector(digit, i8x16) - 1;
}

// 32 and 16 bytes of five digits, 4 bytes of four, d.
INLINE void dequantise_tq1_0(const uint8_t *restrict block, float *restrict y) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    float d = half_at(block + 52);
    for (int s = 0; s < 5; s++) {
        store16(y + 32 * s, floats(ternary(bytes16(block), powers[s])) * d);
        store16(y + 32 * s + 16, floats(ternary(bytes16(block + 16), powers[s])) * d);
        store16(y + 160 + 16 * s, floats(ternary(bytes16(block + 32), powers[s])) * d);
    }
    for (int s = 0; s < 4; s++)
        for (int j = 0; j < 4; j++) {
            uint32_t q = (uint8_t)(block[48 + j] * powers[s]);
            y[240 + 4 * s + j] = (float)((int)(q * 3 >> 8) - 1) * d;
        }
}

// 2 x 32 bytes of four bit pairs, d.
INLINE void dequantise_tq2_0(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block + 64);
    for (int s = 0; s < 16; s++) {
        u8x16 q = bytes16(block + 32 * (s >> 3) + 16 * (s & 1)) >> (uint8_t)(2 * (s >> 1 & 3)) & 3;
        store16(y + 16 * s, floats((i8x16)q - 1) * d);
    }
}
