// Elementwise opcodes: an item is COLUMNS columns of a row. kernels/rows/elementwise.py gives the argument blocks,
// row_scale's is rows/rope.py's.
#include "activations.h"
#include "task.h"

enum { COLUMNS = 2048 };  // table.py's TUNING.columns

typedef struct {
    size_t at;   // first element
    uint32_t n;  // elements
    uint32_t row;
} part;

INLINE part part_of(uint32_t item, uint32_t blocks, uint32_t columns) {
    uint32_t row = item / blocks, begin = item % blocks * COLUMNS, left = columns - begin;
    return (part){(size_t)row * columns + begin, left < COLUMNS ? left : COLUMNS, row};
}

typedef struct {
    const float *a, *b;
    float *y;
    uint32_t columns;
} binary;

INLINE int32_t each2(const binary *g, uint32_t blocks, uint32_t first, uint32_t last, f32x16 (*f)(f32x16, f32x16)) {
    for (uint32_t item = first; item < last; item++) {
        part p = part_of(item, blocks, g->columns);
        const float *a = g->a + p.at, *b = g->b + p.at;
        float *y = g->y + p.at;
        uint32_t i = 0;
        for (; i + 16 <= p.n; i += 16) store16(y + i, f(load16(a + i), load16(b + i)));
        if (i < p.n) store_some(y + i, f(load_some(a + i, p.n - i), load_some(b + i, p.n - i)), p.n - i);
    }
    return OK;
}

INLINE f32x16 sum(f32x16 a, f32x16 b) { return a + b; }
INLINE f32x16 silu_times(f32x16 gate, f32x16 up) { return silu16(gate) * up; }
INLINE f32x16 gelu_times(f32x16 gate, f32x16 up) { return gelu16(gate) * up; }
INLINE f32x16 times_sigmoid(f32x16 x, f32x16 gate) { return x * sigmoid16(gate); }

KERNEL(add) { return each2(arguments, grid[0], first, last, sum); }
KERNEL(swiglu) { return each2(arguments, grid[0], first, last, silu_times); }
KERNEL(geglu) { return each2(arguments, grid[0], first, last, gelu_times); }
KERNEL(swiglu_clamped) { return each2(arguments, grid[0], first, last, swiglu_clamped16); }
KERNEL(sigmoid_mul) { return each2(arguments, grid[0], first, last, times_sigmoid); }

INLINE void each1(const float *x, float *y, uint32_t n, f32x16 (*f)(f32x16, f32x16), f32x16 with) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) store16(y + i, f(load16(x + i), with));
    if (i < n) store_some(y + i, f(load_some(x + i, n - i), with), n - i);
}

INLINE f32x16 times(f32x16 x, f32x16 factor) { return x * factor; }
INLINE f32x16 capped(f32x16 x, f32x16 cap) { return tanh16(x / cap) * cap; }

typedef struct {
    const float *x;
    float *y;
    const float *weight;  // or none
    uint32_t columns;
    float factor;
} scale_arguments;

// y = (x * factor) * weight[0]
KERNEL(scale) {
    const scale_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        part p = part_of(item, grid[0], g->columns);
        each1(g->x + p.at, g->y + p.at, p.n, times, splat_exact(g->factor));
        if (g->weight) each1(g->y + p.at, g->y + p.at, p.n, times, splat_exact(g->weight[0]));
    }
    return OK;
}

typedef struct {
    const float *x;
    float *y;
    uint32_t columns;
    float cap;
} softcap_arguments;

KERNEL(softcap) {
    const softcap_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        part p = part_of(item, grid[0], g->columns);
        each1(g->x + p.at, g->y + p.at, p.n, capped, splat_exact(g->cap));
    }
    return OK;
}

typedef struct {
    const float *x;
    float *y;
    uint32_t columns;
} gelu_arguments;

INLINE f32x16 gelu_of(f32x16 x, f32x16 unused) {
    (void)unused;
    return gelu16(x);
}

KERNEL(gelu) {
    const gelu_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        part p = part_of(item, grid[0], g->columns);
        each1(g->x + p.at, g->y + p.at, p.n, gelu_of, splat(0.0f));
    }
    return OK;
}

typedef struct {
    const float *x;
    float *y;
    const int32_t *position;
    const float *table;
    uint32_t columns, positions;
} row_scale_arguments;

KERNEL(row_scale) {
    const row_scale_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        part p = part_of(item, grid[0], g->columns);
        uint32_t position = (uint32_t)g->position[p.row];
        if (position >= g->positions) return BAD_POSITION;
        each1(g->x + p.at, g->y + p.at, p.n, times, splat_exact(g->table[position]));
    }
    return OK;
}

typedef struct {
    const float *x;
    float *y;
    uint32_t group, offset, size, columns, out_columns;
} slice_arguments;

// An item is one group's run of columns.
KERNEL(slice) {
    const slice_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        uint32_t at = item % grid[0], row = item / grid[0];
        const float *x = g->x + (size_t)row * g->columns + at * g->group + g->offset;
        memcpy(g->y + (size_t)row * g->out_columns + at * g->size, x, 4 * (size_t)g->size);
    }
    return OK;
}
