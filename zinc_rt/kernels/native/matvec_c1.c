// canonical-1, rows by tokens: weights in float32, the dot of 128 accumulators. docs/canonical-1.md.
#include "dequantise.h"
#include "projection.h"

#define PIECE 256   // elements that are dequantised at once: whole blocks, whole rounds of the accumulators
#define TOKENS 4    // that share them

// Any type, `n` tokens from `t`.
INLINE void row_by(const job *j, uint32_t row, uint32_t t, const uint32_t n) {
    const uint8_t *w = j->w + row * j->row_bytes;
    uint32_t elements = block_elements(j->type), bytes = block_bytes(j->type);
    f32x16 acc[TOKENS][8] = {0};
    for (uint32_t i = 0; i < j->k; i += PIECE) {
        _Alignas(64) float piece[PIECE];
        uint32_t size = j->k - i < PIECE ? j->k - i : PIECE, e = 0;
        dequantise_run(j->type, w + (size_t)(i / elements) * bytes, size, piece);
        for (; e + 16 <= size; e += 16)
            for (uint32_t s = 0; s < n; s++) {
                const float *x = (const float *)j->x[t + s] + i;
                acc[s][e / 16 % 8] = acc[s][e / 16 % 8] + load16(piece + e) * load16(x + e);
            }
        for (uint32_t s = 0; e < size && s < n; s++) {
            const float *x = (const float *)j->x[t + s] + i;
            acc[s][e / 16 % 8] = acc[s][e / 16 % 8] + load_some(piece + e, size - e) * load_some(x + e, size - e);
        }
    }
    for (uint32_t s = 0; s < n; s++) put(j, t + s, row, tree128(acc[s]));
}

void rows_c1(const job *j) {
    for (uint32_t r = j->first; r < j->last; r++)
        for (uint32_t t = 0; t < j->n; t += TOKENS) row_by(j, r, t, j->n - t < TOKENS ? j->n - t : TOKENS);
}
