// canonical-1, rows by one token: weights in float32, the dot of 128 accumulators. docs/canonical-1.md.
#include "projection.h"
#include "weights128.h"

#define PIECE 256  // elements that are dequantised at once: whole blocks, whole rounds of the accumulators

// The elements of a row from i on, by pieces: any type, any k.
INLINE void rest_of_row(const job *j, const uint8_t *w, const float *x, uint32_t i, f32x16 acc[8]) {
    uint32_t elements = block_elements(j->type), bytes = block_bytes(j->type);
    for (; i < j->k; i += PIECE) {
        _Alignas(64) float piece[PIECE];
        uint32_t size = j->k - i < PIECE ? j->k - i : PIECE, e = 0;
        dequantise_run(j->type, w + (size_t)(i / elements) * bytes, size, piece);
        for (; e + 16 <= size; e += 16) acc[e / 16 % 8] = acc[e / 16 % 8] + load16(piece + e) * load16(x + i + e);
        if (e < size) acc[e / 16 % 8] = acc[e / 16 % 8] + load_some(piece + e, size - e) * load_some(x + i + e, size - e);
    }
}

// Accumulators that stay in registers: the others wait for another pass over the row, which then is in the cache.
#if defined(__AVX512F__)
#define VECTORS 8
#define ROWS 2  // that share the loads of x
#elif defined(__AVX2__) || defined(__aarch64__)
#define VECTORS 4
#define ROWS 1
#else
#define VECTORS 2
#define ROWS 1
#endif

// The sums of ROWS rows in accumulators [first, first + VECTORS), over the whole blocks of a row.
INLINE void some_sums(uint32_t type, const job *j, uint32_t row, const uint32_t first, f32x16 sums[ROWS][8]) {
    const uint8_t *p[ROWS];
    const float *x = (const float *)j->x[0] + 16 * first;
    f32x16 acc[ROWS][VECTORS];
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        p[r] = j->w + (row + r) * j->row_bytes;
#pragma unroll
        for (int e = 0; e < VECTORS; e++) acc[r][e] = (f32x16){0};
    }
    const uint32_t elements = block_elements(type) == 256 ? 256 : 128;
    const uint32_t bytes = elements == 256 ? block_bytes(type) : bytes128(type);
    for (uint32_t i = 0; i + elements <= j->k; i += elements) {
#pragma unroll
        for (uint32_t half = 0; half < elements / 128; half++)
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++) {
                f32x16 w[8];
                if (!half && !first) fetch(p[r], bytes);
                weights128(type, p[r], (int)half, w);
#pragma unroll
                for (uint32_t e = 0; e < VECTORS; e++) acc[r][e] = acc[r][e] + w[first + e] * load16(x + i + 128 * half + 16 * e);
            }
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) p[r] += bytes;
    }
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
        for (int e = 0; e < VECTORS; e++) sums[r][first + e] = acc[r][e];
}

INLINE void some_rows(uint32_t type, const job *j, uint32_t row) {
    f32x16 sums[ROWS][8];
#pragma unroll
    for (uint32_t first = 0; first < 8; first += VECTORS) some_sums(type, j, row, first, sums);
    uint32_t done = j->k - j->k % (block_elements(type) == 256 ? 256 : 128);
    for (uint32_t r = 0; r < ROWS; r++) {
        if (done < j->k) rest_of_row(j, j->w + (row + r) * j->row_bytes, (const float *)j->x[0], done, sums[r]);
        put(j, 0, row + r, tree128(sums[r]));
    }
}

static void any_rows(const job *j, uint32_t row) {
    for (; row < j->last; row++) {
        f32x16 acc[8] = {0};
        rest_of_row(j, j->w + row * j->row_bytes, (const float *)j->x[0], 0, acc);
        put(j, 0, row, tree128(acc));
    }
}

INLINE void all_rows(uint32_t type, const job *j) {
    uint32_t row = j->first;
    for (; row + ROWS <= j->last; row += ROWS) some_rows(type, j, row);
    any_rows(j, row);
}

void rows_c1(const job *j) {
    switch (j->type) {
#define X(name, ...) \
    case type_##name: all_rows(type_##name, j); return;
        GGML_PLAIN(X)
        WIDE_BLOCKS32(X)
        WIDE_BLOCKS256(X)
#undef X
    }
    any_rows(j, j->first);
}
