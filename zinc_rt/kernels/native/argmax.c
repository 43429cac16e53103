// ARGMAX, STREAM_OUT, VERIFY_K. kernels/rows/sampling.py gives the argument blocks.
#include "exp_log.h"
#include "task.h"

typedef struct {
    const float *logits;
    int32_t *token, *nonfinite;  // either may be none
    uint32_t vocab;
} argmax_arguments;

// Any lane all ones?
INLINE int any(i32x16 mask) {
    int32_t found = 0;
    for (int i = 0; i < 16; i++) found |= mask[i];
    return found != 0;
}

// NaN in no lane; the largest of each lane, NaN passed over.
typedef struct {
    f32x16 largest;
    i32x16 nan, nonfinite;
} extremes;

INLINE void see(extremes *e, f32x16 v) {
    e->largest = choose(v > e->largest, v, e->largest);
    e->nan |= v != v;
    e->nonfinite |= ((i32x16)v & 0x7f800000) == 0x7f800000;
}

INLINE int is_nonfinite(float v) { return v - v != 0.0f; }

// As NumPy's argmax: the first NaN where there is one, else the first of the largest.
KERNEL(argmax) {
    const argmax_arguments *g = arguments;
    uint32_t n = g->vocab;
    for (uint32_t row = first; row < last; row++) {
        const float *x = g->logits + (size_t)row * n;
        extremes e = {splat(-__builtin_inff()), {0}, {0}};
        uint32_t i = 0;
        for (; i + 16 <= n; i += 16) see(&e, load16(x + i));
        for (; i < n; i++) see(&e, splat_exact(x[i]));
        float largest = e.largest[0];
        for (int lane = 1; lane < 16; lane++) largest = e.largest[lane] > largest ? e.largest[lane] : largest;
        uint32_t token = 0, nonfinite = 0;
        if (any(e.nan)) while (x[token] == x[token]) token++;
        else while (x[token] != largest) token++;
        if (any(e.nonfinite)) while (!is_nonfinite(x[nonfinite])) nonfinite++;
        if (g->token) g->token[row] = (int32_t)token;
        if (g->nonfinite) g->nonfinite[row] = any(e.nonfinite) ? (int32_t)nonfinite : -1;
    }
    return OK;
}

typedef struct {
    const int32_t *token, *out_slot;
    int32_t *ring, *cursor;
    const int32_t *counts;
    uint32_t room;
} stream_out_arguments;

enum { ROWS = 2 };  // of a step's counts

// One item: (slot, token) of every row, in order, to the ring.
KERNEL(stream_out) {
    const stream_out_arguments *g = arguments;
    for (int32_t i = 0; i < g->counts[ROWS]; i++) {
        int64_t room = g->room, at = ((int64_t)*g->cursor % room + room) % room;
        g->ring[2 * at] = g->out_slot[i];
        g->ring[2 * at + 1] = g->token[i];
        *g->cursor = (int32_t)((uint32_t)*g->cursor + 1);
    }
    return OK;
}

typedef struct {
    const int32_t *draft, *target;
    int32_t *accept_len, *next_token;
    uint32_t drafted;
} verify_arguments;

// An item is a sequence.
KERNEL(verify_k) {
    const verify_arguments *g = arguments;
    for (uint32_t s = first; s < last; s++) {
        const int32_t *draft = g->draft + (size_t)s * g->drafted, *target = g->target + (size_t)s * (g->drafted + 1);
        uint32_t n = 0;
        while (n < g->drafted && draft[n] == target[n]) n++;
        g->accept_len[s] = (int32_t)n;
        g->next_token[s] = target[n];
    }
    return OK;
}
