// SSM_DELTA_NET in its three forms, SSM_GATED_NORM: docs/canonical-1.md's rows of them. rows/recurrent.py gives the
// argument blocks.
#include "activations.h"
#include "norm.h"
#include "recurrent.h"

enum { VALUES = 16 };  // rows of a head's state to an item

typedef struct {
    const float *conv_out;
    float *unit;  // [tokens][heads][head_dim]
    uint32_t head_dim, columns, heads;
    float eps;
} unit_arguments;

// An item is one of q's or k's heads of a token: x * rsqrt(dot(x, x) + eps).
KERNEL(delta_unit) {
    const unit_arguments *g = arguments;
    uint32_t d = g->head_dim;
    for (uint32_t item = first; item < last; item++) {
        const float *x = g->conv_out + (size_t)(item / g->heads) * g->columns + (size_t)(item % g->heads) * d;
        float *y = g->unit + (size_t)item * d;
        f32x16 r = splat_exact(rsqrt1(dot(x, x, d) + g->eps));
        for (uint32_t i = 0; i < d; i += 16) {
            uint32_t n = d - i < 16 ? d - i : 16;
            store_some(y + i, load_some(x + i, n) * r, n);
        }
    }
    return OK;
}

typedef struct {
    const float *beta, *alpha, *dt_bias, *a;
    float *gates;  // [tokens][sigmoid(beta), exp(g)][heads]
    uint32_t heads;
} gates_arguments;

// An item is a token.
KERNEL(delta_gates) {
    const gates_arguments *g = arguments;
    for (uint32_t token = first; token < last; token++) {
        const float *beta = g->beta + (size_t)token * g->heads, *alpha = g->alpha + (size_t)token * g->heads;
        float *rate = g->gates + (size_t)token * 2 * g->heads, *decay = rate + g->heads;
        for (uint32_t i = 0; i < g->heads; i += 16) {
            uint32_t n = g->heads - i < 16 ? g->heads - i : 16;
            f32x16 step = softplus16(load_some(alpha + i, n) + load_some(g->dt_bias + i, n));
            store_some(rate + i, sigmoid16(load_some(beta + i, n)), n);
            store_some(decay + i, exp16(load_some(g->a + i, n) * step), n);
        }
    }
    return OK;
}

typedef struct {
    const float *conv_out, *unit, *gates;
    float *y;
    states states;
    uint32_t head_dim, columns, k_heads, v_heads, grouped;  // grouped: v heads to a k head, 0 where tiled
    float shrink;
} delta_arguments;

// One row of a head's state meets a token: s = s * decay + k * delta. Gives y.
INLINE float row_step(const float *s, float *made, const float *q, const float *k, float v, float rate, float decay, float shrink, uint32_t d) {
    const f32x16 by = splat_exact(decay);
    f32x16 acc[8] = {0};
    for (uint32_t i = 0; i < d; i += 128)
        for (uint32_t j = 0; j < 8 && i + 16 * j < d; j++) {
            uint32_t at = i + 16 * j, n = d - at < 16 ? d - at : 16;
            f32x16 decayed = load_some(s + at, n) * by;
            acc[j] = acc[j] + decayed * load_some(k + at, n);
            store_some(made + at, decayed, n);
        }
    const f32x16 delta = splat_exact(rate * (v - tree128(acc)));
    for (uint32_t j = 0; j < 8; j++) acc[j] = (f32x16){0};
    for (uint32_t i = 0; i < d; i += 128)
        for (uint32_t j = 0; j < 8 && i + 16 * j < d; j++) {
            uint32_t at = i + 16 * j, n = d - at < 16 ? d - at : 16;
            store_some(made + at, load_some(made + at, n) + load_some(k + at, n) * delta, n);
            // loaded again: behind the row the zeros of k times an infinite delta are NaN
            acc[j] = acc[j] + load_some(made + at, n) * load_some(q + at, n);
        }
    return tree128(acc) * shrink;
}

// The same for heads of 128: a row stays in registers.
INLINE float row_step_128(const float *s, float *made, const float *q, const float *k, float v, float rate, float decay, float shrink) {
    f32x16 state[8], acc[8];
    for (int j = 0; j < 8; j++) {
        state[j] = load16(s + 16 * j) * splat_exact(decay);
        acc[j] = (f32x16){0} + state[j] * load16(k + 16 * j);
    }
    const f32x16 delta = splat_exact(rate * (v - tree128(acc)));
    for (int j = 0; j < 8; j++) {
        state[j] = state[j] + load16(k + 16 * j) * delta;
        acc[j] = (f32x16){0} + state[j] * load16(q + 16 * j);
        store16(made + 16 * j, state[j]);
    }
    return tree128(acc) * shrink;
}

// Rows [from, to) of a head's state meet the tokens of a sequence.
static void delta_rows(const delta_arguments *g, const line *l, uint32_t head, uint32_t from, uint32_t to) {
    uint32_t d = g->head_dim;
    uint32_t k_head = g->grouped ? head / g->grouped : head % g->k_heads;
    const float *old = l->of->old + ((size_t)l->old * g->v_heads + head) * d * d;
    float *made = l->of->made + ((size_t)l->made * g->v_heads + head) * d * d;
    const float *s = old;
    for (uint32_t t = l->first; t < l->end; t++, s = made) {
        const float *q = g->unit + ((size_t)t * 2 * g->k_heads + k_head) * d, *k = q + (size_t)g->k_heads * d;
        const float *v = g->conv_out + (size_t)t * g->columns + (size_t)(2 * g->k_heads + head) * d;
        const float *gates = g->gates + (size_t)t * 2 * g->v_heads;
        float rate = gates[head], decay = gates[g->v_heads + head];
        float *y = g->y + ((size_t)t * g->v_heads + head) * d;
        for (uint32_t j = from; j < to; j++) {
            size_t at = (size_t)j * d;
            y[j] = d == 128 ? row_step_128(s + at, made + at, q, k, v[j], rate, decay, g->shrink)
                            : row_step(s + at, made + at, q, k, v[j], rate, decay, g->shrink, d);
        }
    }
    if (s == old && made != old) memcpy(made + (size_t)from * d, old + (size_t)from * d, 4 * (size_t)(to - from) * d);
}

// An item is VALUES rows of a v head's state of a sequence.
KERNEL(delta_net) {
    const delta_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        line l;
        int32_t why = line_of(&g->states, item / grid[0] / grid[1], &l);
        if (why) return why;
        uint32_t from = item % grid[0] * VALUES, to = from + VALUES < g->head_dim ? from + VALUES : g->head_dim;
        delta_rows(g, &l, item / grid[0] % grid[1], from, to);
    }
    return OK;
}

typedef struct {
    const float *x, *z, *weight;
    float *y;
    uint32_t size;
    float eps;
} gated_norm_arguments;

// An item is a head of a token: RMS_NORM(x) * silu(z).
KERNEL(gated_norm) {
    const gated_norm_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        const float *z = g->z + (size_t)item * g->size;
        float *y = g->y + (size_t)item * g->size;
        rms_norm(g->x + (size_t)item * g->size, g->weight, y, g->size, g->eps);
        for (uint32_t i = 0; i < g->size; i += 16) {
            uint32_t n = g->size - i < 16 ? g->size - i : 16;
            store_some(y + i, load_some(y + i, n) * silu16(load_some(z + i, n)), n);
        }
    }
    return OK;
}
