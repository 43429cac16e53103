// SHARED_EXPERT's end: out = hidden + down * sigmoid(score of the token). kernels/rows/matvec.py's `expert_gate`.
#include "activations.h"
#include "task.h"

typedef struct {
    const float *down;
    const float *score;   // [tokens], or 0: no gate
    const float *hidden;  // or 0
    float *y;
    uint32_t width;
} gate_arguments;

// An item is a token.
KERNEL(expert_gate) {
    const gate_arguments *g = arguments;
    for (uint32_t token = first; token < last; token++) {
        size_t at = (size_t)token * g->width;
        f32x16 gate = g->score ? sigmoid16(splat_exact(g->score[token])) : splat_exact(1.0f);  // times 1 is exact
        for (uint32_t i = 0; i < g->width; i += 16) {
            uint32_t n = g->width - i < 16 ? g->width - i : 16;
            f32x16 v = (n < 16 ? load_some(g->down + at + i, n) : load16(g->down + at + i)) * gate;
            if (g->hidden) v = (n < 16 ? load_some(g->hidden + at + i, n) : load16(g->hidden + at + i)) + v;
            if (n < 16) store_some(g->y + at + i, v, n);
            else store16(g->y + at + i, v);
        }
    }
    return OK;
}
