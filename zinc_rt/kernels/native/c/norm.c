// Norms. kernels/rows/norm.py gives the argument blocks.
#include "norm.h"
#include "task.h"

typedef struct {
    const float *x, *weight;  // weight may be none
    float *y;
    uint32_t size;
    float eps;
    uint32_t columns;
} norm_arguments;

// An item is one group of `size` neighbours.
KERNEL(rms_norm) {
    const norm_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        size_t at = (size_t)(item / grid[0]) * g->columns + item % grid[0] * g->size;
        rms_norm(g->x + at, g->weight, g->y + at, g->size, g->eps);
    }
    return OK;
}

typedef struct {
    const float *x, *residual, *weight;
    float *y, *hidden;
    uint32_t columns;
    float eps;
} residual_norm_arguments;

// An item is a row: hidden = x + residual, y = RMS_NORM of it.
KERNEL(residual_rms_norm) {
    const residual_norm_arguments *g = arguments;
    uint32_t n = g->columns;
    for (uint32_t row = first; row < last; row++) {
        const float *x = g->x + (size_t)row * n, *residual = g->residual + (size_t)row * n;
        float *hidden = g->hidden + (size_t)row * n;
        uint32_t i = 0;
        for (; i + 16 <= n; i += 16) store16(hidden + i, load16(x + i) + load16(residual + i));
        if (i < n) store_some(hidden + i, load_some(x + i, n - i) + load_some(residual + i, n - i), n - i);
        rms_norm(hidden, g->weight, g->y + (size_t)row * n, n, g->eps);
    }
    return OK;
}

typedef struct {
    const float *x, *weight, *bias;  // bias may be none
    float *y;
    uint32_t columns;
    float eps;
} layer_norm_arguments;

// An item is a row.
KERNEL(layer_norm) {
    const layer_norm_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) {
        size_t at = (size_t)row * g->columns;
        layer_norm(g->x + at, g->weight, g->bias, g->y + at, g->columns, g->eps);
    }
    return OK;
}
