// Weights to float32: an item is a row.
#include "dequantise.h"
#include "task.h"

typedef struct {
    const uint8_t *w;
    float *y;
    uint64_t row_bytes;  // from one row to the next
    uint32_t type, k;
} dequantise_arguments;

KERNEL(dequantise) {
    const dequantise_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) dequantise_run(g->type, g->w + row * g->row_bytes, g->k, g->y + (size_t)row * g->k);
    return OK;
}
