// Activations in 8 bits, as docs/canonical-1.md says under canonical-1-q8. projection.h has the records.
#include "projection.h"
#include "quants.h"

typedef struct {
    const float *x;
    uint8_t *records;
    const int32_t *row;     // 0, or the input of each token
    const int32_t *counts;  // the step's
    uint32_t k, record_bytes;
    uint32_t x_stride, x_head_stride;  // in floats
    uint32_t inputs;                   // that `row` may name: a number, or IS_COUNT | an index of counts
} quantisation;

#define SEGMENT 1024  // elements to an item

static void blocks32(const float *x, uint8_t *record, uint32_t k, uint32_t begin, uint32_t end) {
    act32 to = act32_at(record, k);
    for (uint32_t i = begin; i < end; i += 32) {
        step s = step_of(x + i, 32, 1);
        int32_t sum = quants16(x + i, s, (int8_t *)to.q + i) + quants16(x + i + 16, s, (int8_t *)to.q + i + 16);
        ((float *)to.d)[i / 32] = s.d;
        ((int32_t *)to.minus)[i / 32] = -128 * sum;
    }
}

static void blocks256(const float *x, uint8_t *record, uint32_t k, uint32_t begin, uint32_t end) {
    act256 to = act256_at(record, k);
    for (uint32_t i = begin; i < end; i += 256) {
        step s = step_of(x + i, 256, 0);
        ((float *)to.d)[i / 256] = s.d;
        for (uint32_t e = i; e < i + 256; e += 32) {
            int32_t a = quants16(x + e, s, (int8_t *)to.q + e), b = quants16(x + e + 16, s, (int8_t *)to.q + e + 16);
            ((int16_t *)to.halves)[e / 16] = (int16_t)a;
            ((int16_t *)to.halves)[e / 16 + 1] = (int16_t)b;
            ((int16_t *)to.sums)[e / 32] = (int16_t)(a + b);
        }
    }
}

// Grid (segments of a record, heads, tokens); records are [tokens][heads].
static int32_t quantise(const quantisation *p, const uint32_t grid[3], uint32_t first, uint32_t last,
                        void (*blocks)(const float *, uint8_t *, uint32_t, uint32_t, uint32_t)) {
    uint32_t inputs = counted(p->counts, p->inputs);
    for (uint32_t item = first; item < last; item++) {
        uint32_t number = item / grid[0], begin = item % grid[0] * SEGMENT;
        uint32_t token = number / grid[1], head = number % grid[1];
        uint32_t input = p->row ? (uint32_t)p->row[token] : token;
        if (p->row && input >= inputs) return BAD_ROW;
        const float *x = p->x + (size_t)input * p->x_stride + (size_t)head * p->x_head_stride;
        uint32_t end = begin + SEGMENT < p->k ? begin + SEGMENT : p->k;
        blocks(x, p->records + (size_t)number * p->record_bytes, p->k, begin, end);
    }
    return OK;
}

KERNEL(quantise32) { return quantise(arguments, grid, first, last, blocks32); }
KERNEL(quantise256) { return quantise(arguments, grid, first, last, blocks256); }
