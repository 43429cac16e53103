// KV_WRITE_BATCHED. rows/rope.py gives the argument block.
#include "kv.h"
#include "paging.h"

typedef struct {
    const float *k, *v;
    uint8_t *kv_k, *kv_v;
    const int32_t *position, *slot, *page_table;
    uint32_t k_columns, v_columns, slots, pages, page_tokens, cache_rows, k_type, v_type;
} kv_write_arguments;

// An item is a token.
KERNEL(kv_write) {
    const kv_write_arguments *g = arguments;
    const paging pages = {g->page_table, g->slots, g->pages, g->page_tokens, g->cache_rows};
    for (uint32_t token = first; token < last; token++) {
        int64_t row = cache_row(&pages, g->slot[token], g->position[token]);
        if (row < 0) return (int32_t)-row;
        size_t k_bytes = kv_bytes(g->k_type, g->k_columns), v_bytes = kv_bytes(g->v_type, g->v_columns);
        kv_store(g->k_type, g->kv_k + (size_t)row * k_bytes, g->k + (size_t)token * g->k_columns, g->k_columns);
        kv_store(g->v_type, g->kv_v + (size_t)row * v_bytes, g->v + (size_t)token * g->v_columns, g->v_columns);
    }
    return OK;
}
