// canonical-1, many tokens: four rows are dequantised once for all tokens of a tile. docs/canonical-1.md, Dot product.
#include "dequantise.h"
#include "projection.h"

#define PIECE 1024  // elements that are dequantised at once: they stay in the first-level cache
#define ROWS 4      // that are
#define PAIRS 16    // of tokens that share them

typedef struct {
    f32x16 of[ROWS][2][8];  // row, token
} accumulators;

// A quarter of the accumulators at a time: 16 vectors that stay in registers, fed by 12 loads for 16 products.
INLINE void quarter(accumulators *a, const float *w, const float *const x[2], uint32_t size, const uint32_t which) {
    f32x16 acc[ROWS][2][2];
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < 2; t++)
            for (int e = 0; e < 2; e++) acc[r][t][e] = a->of[r][t][2 * which + e];
    for (uint32_t i = 32 * which; i < size; i += 128) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            f32x16 x0 = load16(x[0] + i + 16 * e), x1 = load16(x[1] + i + 16 * e);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                f32x16 v = load16(w + r * PIECE + i + 16 * e);
                acc[r][0][e] = acc[r][0][e] + v * x0;
                acc[r][1][e] = acc[r][1][e] + v * x1;
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < 2; t++)
            for (int e = 0; e < 2; e++) a->of[r][t][2 * which + e] = acc[r][t][e];
}

// `size` elements, a whole number of rounds of the accumulators.
static void rounds(accumulators *a, const float *w, const float *const x[2], uint32_t size) {
    quarter(a, w, x, size, 0);
    quarter(a, w, x, size, 1);
    quarter(a, w, x, size, 2);
    quarter(a, w, x, size, 3);
}

// Rows from `row`, as many as there are, by n tokens from t.
static void few_rows(const job *j, uint32_t row, uint32_t t, uint32_t n) {
    accumulators acc[PAIRS];
    uint32_t elements = block_elements(j->type), bytes = block_bytes(j->type);
    uint32_t rows = j->last - row < ROWS ? j->last - row : ROWS;
    for (uint32_t pair = 0; pair < (n + 1) / 2; pair++) memset(&acc[pair], 0, sizeof *acc);
    for (uint32_t i = 0; i < j->k; i += PIECE) {
        _Alignas(64) float w[ROWS][PIECE];
        uint32_t size = j->k - i < PIECE ? j->k - i : PIECE, whole = size & ~127u;
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint8_t *from = j->w + (row + (r < rows ? r : 0)) * j->row_bytes + (size_t)(i / elements) * bytes;
            dequantise_run(j->type, from, size, w[r]);
            for (uint32_t e = size; e % 128; e++) w[r][e] = 0;  // padding in both operands changes no bit
        }
        for (uint32_t pair = 0; pair < (n + 1) / 2; pair++) {
            const float *x[2];
            for (uint32_t s = 0; s < 2; s++) x[s] = (const float *)j->x[t + (2 * pair + s < n ? 2 * pair + s : n - 1)] + i;
            if (whole) rounds(&acc[pair], w[0], x, whole);
            if (whole == size) continue;
            _Alignas(64) float rest[2][128] = {0};
            for (uint32_t s = 0; s < 2; s++) memcpy(rest[s], x[s] + whole, 4 * (size - whole));
            const float *padded[2] = {rest[0], rest[1]};
            rounds(&acc[pair], w[0] + whole, padded, 128);
        }
    }
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t r = 0; r < rows; r++) put(j, t + s, row + r, tree128(acc[s / 2].of[r][s % 2]));
}

void project_rows_c1(const job *j) {
    if (j->n == 1) {
        rows_c1(j);
        return;
    }
    for (uint32_t t = 0; t < j->n; t += 2 * PAIRS)
        for (uint32_t row = j->first; row < j->last; row += ROWS) few_rows(j, row, t, j->n - t < 2 * PAIRS ? j->n - t : 2 * PAIRS);
}
