// Types of small blocks to float32: ggml's formulas, rounded where gguf/quants.py rounds.
#pragma once
#include "vec.h"

INLINE f32x16 floats(i8x16 q) { return __builtin_convertvector(__builtin_convertvector(q, i32x16), f32x16); }
INLINE f32x16 floats_unsigned(u8x16 q) { return floats((i8x16)q); }  // of bytes below 128
INLINE u8x16 bytes16(const void *p) { return *(const u8x16u *)p; }

INLINE void dequantise_f32(const uint8_t *restrict block, float *restrict y) { memcpy(y, block, 4); }
INLINE void dequantise_f16(const uint8_t *restrict block, float *restrict y) { *y = half_at(block); }
INLINE void dequantise_bf16(const uint8_t *restrict block, float *restrict y) {
    uint16_t half;
    memcpy(&half, block, 2);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(y, &bits, 4);
}

// Bit j of `mask` as byte j: 0 or 1.
INLINE u8x16 spread16(uint32_t mask) {
    u8x16 low = (u8x16){0} + (uint8_t)mask, high = (u8x16){0} + (uint8_t)(mask >> 8);
    u8x16 each = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31);
    u8x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return (u8x16)((each & bit) != 0) & 1;
}
INLINE uint32_t word_at(const void *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}
INLINE uint32_t short_at(const void *p) {
    uint16_t word;
    memcpy(&word, p, 2);
    return word;
}

// d, 16 bytes: low nibbles are elements 0-15, high ones 16-31.
INLINE void dequantise_q4_0(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    u8x16 q = bytes16(block + 2);
    store16(y, floats((i8x16)(q & 15) - 8) * d);
    store16(y + 16, floats((i8x16)(q >> 4) - 8) * d);
}

// d, m, nibbles.
INLINE void dequantise_q4_1(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block), m = half_at(block + 2);
    u8x16 q = bytes16(block + 4);
    store16(y, floats_unsigned(q & 15) * d + m);
    store16(y + 16, floats_unsigned(q >> 4) * d + m);
}

// d, 32 fifth bits, nibbles.
INLINE void dequantise_q5_0(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    uint32_t high = word_at(block + 2);
    u8x16 q = bytes16(block + 6);
    store16(y, floats((i8x16)((q & 15) | spread16(high) << 4) - 16) * d);
    store16(y + 16, floats((i8x16)(q >> 4 | spread16(high >> 16) << 4) - 16) * d);
}

// d, m, 32 fifth bits, nibbles.
INLINE void dequantise_q5_1(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block), m = half_at(block + 2);
    uint32_t high = word_at(block + 4);
    u8x16 q = bytes16(block + 8);
    store16(y, floats_unsigned((q & 15) | spread16(high) << 4) * d + m);
    store16(y + 16, floats_unsigned(q >> 4 | spread16(high >> 16) << 4) * d + m);
}

// d, 32 signed bytes.
INLINE void dequantise_q8_0(const uint8_t *restrict block, float *restrict y) {
    float d = half_at(block);
    i8x16 low = (i8x16)bytes16(block + 2), high = (i8x16)bytes16(block + 18);
    store16(y, floats(low) * d);
    store16(y + 16, floats(high) * d);
}

// table[index[j] & 15]; a permutation of bytes on every machine.
INLINE i8x16 looked_up(i8x16 table, u8x16 index) { return __builtin_shufflevector(table, (i8x16)index); }

// 16 bytes of nibbles that index `table`: low ones are elements 0-15.
INLINE void from_table(i8x16 table, const uint8_t *restrict nibbles, float d, float *restrict y) {
    u8x16 q = bytes16(nibbles);
    store16(y, floats(looked_up(table, q & 15)) * d);
    store16(y + 16, floats(looked_up(table, q >> 4)) * d);
}

static const i8x16 IQ4_VALUES = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const i8x16 FP4_VALUES = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // twice e2m1

// d, nibbles.
INLINE void dequantise_iq4_nl(const uint8_t *restrict block, float *restrict y) {
    from_table(IQ4_VALUES, block + 2, half_at(block), y);
}

// An exponent byte, nibbles. Half of 2^(e - 127), denormal below 2.
INLINE void dequantise_mxfp4(const uint8_t *restrict block, float *restrict y) {
    uint32_t e = block[0], bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float d;
    memcpy(&d, &bits, 4);
    from_table(FP4_VALUES, block + 1, d, y);
}

// 4 scales of e4m3 without sign, 4 x 8 bytes of nibbles: low ones are a sub-block's elements 0-7. Half the scale.
INLINE void dequantise_nvfp4(const uint8_t *restrict block, float *restrict y) {
    for (int s = 0; s < 4; s++) {
        uint32_t x = block[s], exponent = x >> 3 & 15, mantissa = x & 7;
        uint32_t bits = (exponent + 119) << 23 | mantissa << 20;  // 2^(exponent - 7) * (1 + mantissa / 8) / 2
        float d;
        memcpy(&d, &bits, 4);
        if (exponent == 0) d = (float)mantissa * 0x1p-10f;
        if (x == 0x7f) d = 0;
        u8x16 q = {0};
        memcpy(&q, block + 4 + 8 * s, 8);
        q = __builtin_shufflevector(q & 15, q >> 4, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        store16(y + 16 * s, floats(looked_up(FP4_VALUES, q)) * d);
    }
}
