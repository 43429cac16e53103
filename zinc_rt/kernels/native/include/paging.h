// Where a token's keys and values lie: (slot, position) -> row of a paged cache. All three are data, and checked.
#pragma once
#include <stdint.h>
#include "task.h"

typedef struct {
    const int32_t *page_table;  // [slots][pages]
    uint32_t slots, pages, page_tokens, cache_rows;
} paging;

// The row, or -code.
static inline int64_t cache_row(const paging *p, int32_t slot, int32_t position) {
    if ((uint32_t)slot >= p->slots) return -BAD_SLOT;
    uint32_t page = (uint32_t)position / p->page_tokens;
    if (position < 0 || page >= p->pages) return -BAD_POSITION;
    int64_t first = (int64_t)p->page_table[(size_t)slot * p->pages + page] * p->page_tokens;
    int64_t row = first + (uint32_t)position % p->page_tokens;
    return first < 0 || row >= p->cache_rows ? -BAD_PAGE : row;
}
