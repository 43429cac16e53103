// KV_WRITE_BATCHED. rows/rope.py gives the argument block.
#include "paging.h"
#include "vec.h"

typedef struct {
    const float *k, *v;
    float *kv_k, *kv_v;
    const int32_t *position, *slot, *page_table;
    uint32_t k_columns, v_columns, slots, pages, page_tokens, cache_rows;
} kv_write_arguments;

// An item is a token.
KERNEL(kv_write) {
    const kv_write_arguments *g = arguments;
    const paging pages = {g->page_table, g->slots, g->pages, g->page_tokens, g->cache_rows};
    for (uint32_t token = first; token < last; token++) {
        int64_t row = cache_row(&pages, g->slot[token], g->position[token]);
        if (row < 0) return (int32_t)-row;
        memcpy(g->kv_k + (size_t)row * g->k_columns, g->k + (size_t)token * g->k_columns, 4 * (size_t)g->k_columns);
        memcpy(g->kv_v + (size_t)row * g->v_columns, g->v + (size_t)token * g->v_columns, 4 * (size_t)g->v_columns);
    }
    return OK;
}
