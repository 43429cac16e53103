// Weights of every type to float32, bit for bit as kernels/reference/arithmetic/dequantise.py.
//
//     block_elements(type), block_bytes(type)     of a block (types.h), 0 for a type that is not read
//     dequantise_block(type, block, y)            one block; `type` is best a constant where this is called
//     dequantise_run(type, from, n, y)            n elements of whole blocks that follow each other
//
// `block` and `y` need no alignment and must not overlap; nothing behind the block is read.
#pragma once
#include "blocks_iq.h"
#include "blocks_k.h"
#include "types.h"

INLINE void dequantise_block(uint32_t type, const uint8_t *restrict block, float *restrict y) {
    switch (type) {
#define X(name, number, elements, bytes) \
    case number: dequantise_##name(block, y); return;
        GGML_TYPES(X)
#undef X
    }
}

INLINE void run_f16(const uint8_t *restrict from, uint32_t n, float *restrict y) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) store16(y + i, halves16(from + 2 * (size_t)i));
    for (; i < n; i++) dequantise_f16(from + 2 * (size_t)i, y + i);
}
INLINE void run_bf16(const uint8_t *restrict from, uint32_t n, float *restrict y) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        u32x16 bits = __builtin_convertvector(*(const u16x16u *)(from + 2 * (size_t)i), u32x16) << 16;
        store16(y + i, (f32x16)bits);
    }
    for (; i < n; i++) dequantise_bf16(from + 2 * (size_t)i, y + i);
}

static inline void dequantise_run(uint32_t type, const uint8_t *restrict from, uint32_t n, float *restrict y) {
    switch (type) {
    case type_f32: memcpy(y, from, 4 * (size_t)n); return;
    case type_f16: run_f16(from, n, y); return;
    case type_bf16: run_bf16(from, n, y); return;
#define X(name, number, elements, bytes) \
    case number: \
        for (uint32_t i = 0; i < n; i += elements, from += bytes) dequantise_##name(from, y + i); \
        return;
        GGML_BLOCKS(X)
#undef X
    }
}
