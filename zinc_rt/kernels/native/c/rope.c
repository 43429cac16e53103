// ROPE, and norm, rotation and cache write in one. rows/rope.py gives the argument blocks.
#include "kv.h"
#include "norm.h"
#include "paging.h"
#include "rope.h"
#include "task.h"

// [positions] rows of `pairs` floats; strides in bytes, 0: packed.
typedef struct {
    const uint8_t *cos;
    uint64_t cos_stride;
    const uint8_t *sin;
    uint64_t sin_stride;
} tables;

INLINE const float *row_at(const uint8_t *table, uint64_t stride, uint32_t position, uint32_t pairs) {
    return (const float *)(table + (stride ? stride : 4 * (uint64_t)pairs) * position);
}

// Turns y by a position's rows of the tables.
INLINE void turn(float *y, const tables *t, uint32_t position, uint32_t pairs, uint32_t mode) {
    const float *cos = row_at(t->cos, t->cos_stride, position, pairs);
    rope_pairs(y, cos, row_at(t->sin, t->sin_stride, position, pairs), pairs, mode);
}

typedef struct {
    const float *x;
    const int32_t *position;
    tables tables;
    float *y;
    uint32_t columns, head_dim, offset, pairs, mode, positions;
} rope_arguments;

// An item is a head of a token.
KERNEL(rope) {
    const rope_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        uint32_t head = item % grid[0], token = item / grid[0], position = (uint32_t)g->position[token];
        if (position >= g->positions) return BAD_POSITION;
        size_t at = (size_t)token * g->columns + (size_t)head * g->head_dim;
        memcpy(g->y + at, g->x + at, 4 * (size_t)g->head_dim);
        turn(g->y + at + g->offset, &g->tables, position, g->pairs, g->mode);
    }
    return OK;
}

typedef struct {
    const float *q, *k, *v, *q_weight, *k_weight;  // weights may be none
    tables tables;
    const int32_t *position, *slot, *page_table;
    uint8_t *kv_k, *kv_v;
    float *q_out;
    uint32_t head_dim, pairs, mode, positions, q_heads, k_heads, v_columns;
    float eps;
    uint32_t slots, pages, page_tokens, cache_rows, q_skip, k_type, v_type;  // q_skip: columns behind each head of q
} fused_arguments;

// y = ROPE of RMS_NORM of a head, the norm only where there is a weight.
static void norm_rope(const fused_arguments *g, const float *x, const float *weight, float *y, uint32_t position) {
    if (weight) rms_norm(x, weight, y, g->head_dim, g->eps);
    else memcpy(y, x, 4 * (size_t)g->head_dim);
    turn(y, &g->tables, position, g->pairs, g->mode);
}

// Items of a token: q's heads, k's heads, v.
KERNEL(norm_rope_kv) {
    const fused_arguments *g = arguments;
    const paging pages = {g->page_table, g->slots, g->pages, g->page_tokens, g->cache_rows};
    uint32_t k_columns = g->k_heads * g->head_dim;
    for (uint32_t item = first; item < last; item++) {
        uint32_t head = item % grid[0], token = item / grid[0], position = (uint32_t)g->position[token];
        if (position >= g->positions) return BAD_POSITION;
        if (head < g->q_heads) {
            size_t number = (size_t)token * g->q_heads + head;
            const float *x = g->q + number * (g->head_dim + g->q_skip);
            norm_rope(g, x, g->q_weight, g->q_out + number * g->head_dim, position);
            continue;
        }
        int64_t row = cache_row(&pages, g->slot[token], g->position[token]);
        if (row < 0) return (int32_t)-row;
        if (head < g->q_heads + g->k_heads) {
            size_t in_row = (size_t)(head - g->q_heads) * g->head_dim;
            const float *x = g->k + (size_t)token * k_columns + in_row;
            uint8_t *to = g->kv_k + kv_bytes(g->k_type, (size_t)row * k_columns + in_row);
            float turned[KV_WIDEST];
            norm_rope(g, x, g->k_weight, g->k_type == KV_F32 ? (float *)to : turned, position);
            if (g->k_type != KV_F32) kv_store(g->k_type, to, turned, g->head_dim);
        } else {
            uint8_t *to = g->kv_v + kv_bytes(g->v_type, (size_t)row * g->v_columns);
            kv_store(g->v_type, to, g->v + (size_t)token * g->v_columns, g->v_columns);
        }
    }
    return OK;
}
