// Elementwise opcodes: an item is a row of `columns`. kernels/rows/elementwise.py gives the argument blocks.
#include "task.h"
#include "vec.h"

typedef struct {
    const float *a, *b;
    float *y;
    uint32_t columns;
} binary;

KERNEL(add) {
    const binary *g = arguments;
    uint32_t n = g->columns;
    for (uint32_t row = first; row < last; row++) {
        const float *a = g->a + (size_t)row * n, *b = g->b + (size_t)row * n;
        float *y = g->y + (size_t)row * n;
        uint32_t i = 0;
        for (; i + 16 <= n; i += 16) store16(y + i, load16(a + i) + load16(b + i));
        if (i < n) store_some(y + i, load_some(a + i, n - i) + load_some(b + i, n - i), n - i);
    }
    return OK;
}
