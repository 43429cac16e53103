// ggml's weight types: X(name, ggml's number, elements a block, bytes a block). A test holds them against the gguf
// package. f32, f16 and bf16 are blocks of one element.
#pragma once
#include <stdint.h>

#define GGML_PLAIN(X) X(f32, 0, 1, 4) X(f16, 1, 1, 2) X(bf16, 30, 1, 2)
#define GGML_BLOCKS(X) \
    X(q4_0, 2, 32, 18) \
    X(q4_1, 3, 32, 20) \
    X(q5_0, 6, 32, 22) \
    X(q5_1, 7, 32, 24) \
    X(q8_0, 8, 32, 34) \
    X(q2_k, 10, 256, 84) \
    X(q3_k, 11, 256, 110) \
    X(q4_k, 12, 256, 144) \
    X(q5_k, 13, 256, 176) \
    X(q6_k, 14, 256, 210) \
    X(iq2_xxs, 16, 256, 66) \
    X(iq2_xs, 17, 256, 74) \
    X(iq3_xxs, 18, 256, 98) \
    X(iq1_s, 19, 256, 50) \
    X(iq4_nl, 20, 32, 18) \
    X(iq3_s, 21, 256, 110) \
    X(iq2_s, 22, 256, 82) \
    X(iq4_xs, 23, 256, 136) \
    X(iq1_m, 29, 256, 56) \
    X(tq1_0, 34, 256, 54) \
    X(tq2_0, 35, 256, 66) \
    X(mxfp4, 39, 32, 17) \
    X(nvfp4, 40, 64, 36)
#define GGML_TYPES(X) GGML_PLAIN(X) GGML_BLOCKS(X)

// Types with bodies of their own in canonical-1: weights128_NAME in weights128.h. Others go by dequantised pieces.
#define WIDE_BLOCKS32(X) X(q8_0) X(q4_0)
#define WIDE_BLOCKS256(X) X(q4_k) X(q5_k) X(q6_k)
// Types that canonical-1-q8 multiplies in integers: X(name, elements of an activation block, tokens from which panels
// are faster than rows). zinc-rt kernel-test --mode perf shows where that is.
#define Q8_TYPES(X) X(q8_0, 32, 5) X(q4_0, 32, 3) X(q4_k, 256, 3) X(q5_k, 256, 3) X(q6_k, 256, 3)

enum {
#define X(name, number, elements, bytes) type_##name = number,
    GGML_TYPES(X)
#undef X
};

// 0 for a number that is not in the table.
static inline uint32_t block_elements(uint32_t type) {
    switch (type) {
#define X(name, number, elements, bytes) \
    case number: return elements;
        GGML_TYPES(X)
#undef X
    }
    return 0;
}
static inline uint32_t block_bytes(uint32_t type) {
    switch (type) {
#define X(name, number, elements, bytes) \
    case number: return bytes;
        GGML_TYPES(X)
#undef X
    }
    return 0;
}

// Of k elements in a row, whole blocks.
static inline uint64_t row_bytes(uint32_t type, uint32_t k) { return (uint64_t)k / block_elements(type) * block_bytes(type); }
