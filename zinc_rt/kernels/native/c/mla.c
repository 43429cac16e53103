// MLA_ABSORB's and MLA_EXPAND's copies: runs of a head's columns. rows/mla.py gives the argument block.
#include "task.h"
#include "vec.h"

// In floats: where a run begins in a token's row, from one head to the next, from one token to the next.
typedef struct {
    uint32_t offset, head, token;
} place;

typedef struct {
    const float *x;
    float *y;
    uint32_t n;
    place from, to;
} copy_arguments;

// An item is a head of a token: n columns of x to y.
KERNEL(copy_columns) {
    const copy_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        size_t head = item % grid[0], token = item / grid[0];
        const float *x = g->x + token * g->from.token + head * g->from.head + g->from.offset;
        memcpy(g->y + token * g->to.token + head * g->to.head + g->to.offset, x, 4 * (size_t)g->n);
    }
    return OK;
}
