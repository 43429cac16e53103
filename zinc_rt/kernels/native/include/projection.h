// What a projection is, and who computes which part of one. rows/projections.py writes the argument block.
#pragma once
#include "task.h"
#include "types.h"
#include "vec.h"

#define PANEL 16  // rows of a weight to an item
#define TILE 128  // tokens that are worked on at once

// y[token] = (dot(x[token], a weight's row) * scale) + bias. An input is f32, or a record that quantise.c wrote.
// Three kinds, by grid:
//   (panels, heads, 1)            each head has its own matrix, its part of the input, its part of the output
//   (panels, choices, tokens)     `routes` are given: z * choices + y numbers the experts in use
typedef struct {
    const uint8_t *x, *w;
    uint64_t expert_bytes, row_bytes;
    float *y;
    const float *scale, *bias;  // [experts] and [rows], with routes [experts][rows]; or 0
    const int32_t *row;         // 0, or the input of each token
    const uint32_t *routes;     // 0, or what route.c wrote
    const int32_t *counts;      // the step's
    uint32_t count, inputs;     // tokens, and inputs that `row` may name: numbers, or IS_COUNT | an index of counts
    uint32_t type, rows, k;
    uint32_t x_bytes, x_head_bytes;    // from one token's input to the next, from one head's
    uint32_t y_stride, y_head_stride;  // in floats
    uint32_t entries_to_an_input;      // routes: choices, or 1 where each choice has an input of its own
    uint32_t experts;
} projection;

// Rows [first, last) of one matrix by n tokens.
typedef struct {
    const uint8_t *w;
    size_t row_bytes;
    uint32_t first, last, k, type, n;
    const float *scale, *bias;  // one factor, or 0; a value a row, or 0
    const uint8_t *x[TILE];
    float *y[TILE];
} job;

void rows_c1(const job *j);          // matvec_c1.c: one token
void rows_q8(const job *j);          // matvec_q8.c
void project_rows_c1(const job *j);  // gemm_c1.c: as the number of tokens asks
void project_rows_q8(const job *j);  // gemm_q8.c: as the number of tokens asks
void project_rows_wmma_f16(const job *j);  // gemm_wmma.c
void project_rows_wmma_bf16(const job *j);

INLINE uint32_t counted(const int32_t *counts, uint32_t count) {
    return count & IS_COUNT ? (uint32_t)counts[count & ~IS_COUNT] : count;
}

// One element of a result.
INLINE void put(const job *j, uint32_t token, uint32_t row, float value) {
    if (j->scale) value = value * j->scale[0];
    if (j->bias) value = value + j->bias[row];
    j->y[token][row] = value;
}

// Of what route.c writes: 32-bit words.
//   in use; a counter for each expert; (expert, begin, end) for each expert in use; entries, token * choices + choice
typedef struct {
    uint32_t expert, begin, end;
} route;
INLINE const route *routes_of(const uint32_t *words, uint32_t experts) { return (const route *)(words + 1 + experts); }

// What quantise.c makes of k floats: q int8 [k], then for blocks of 32 or 256
//   32:  d float [k / 32], minus int32 [k / 32]: -128 * the block's sum of q
//   256: d float [k / 256], sums int16 [k / 256][8] of 32 each, halves int16 [k / 256][16] of 16 each
typedef struct {
    const int8_t *q;
    const float *d;
    const int32_t *minus;
} act32;
typedef struct {
    const int8_t *q;
    const float *d;
    const int16_t *sums, *halves;
} act256;
INLINE act32 act32_at(const uint8_t *record, uint32_t k) {
    return (act32){(const int8_t *)record, (const float *)(record + k), (const int32_t *)(record + k + k / 8)};
}
INLINE act256 act256_at(const uint8_t *record, uint32_t k) {
    const int16_t *sums = (const int16_t *)(record + k + k / 64);
    return (act256){(const int8_t *)record, (const float *)(record + k), sums, sums + k / 32};
}
