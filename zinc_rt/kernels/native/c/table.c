// Tables of rows and of page numbers. rows/table_store.py gives the argument blocks.
#include "task.h"
#include "vec.h"

typedef struct {
    const int32_t *entry, *value;
    int32_t *table, *before;  // before: what the entries held
    const int32_t *count;
    uint32_t size;
} table_store_arguments;

// TABLE_STORE, one item: table[entry[i]] = value[i]. A bad entry leaves the table as it was.
KERNEL(table_store) {
    const table_store_arguments *g = arguments;
    int32_t n = *g->count, twice = 0;
    for (int32_t i = 0; i < n; i++)
        if ((uint32_t)g->entry[i] >= g->size) return BAD_ENTRY;
    // An entry that is named twice holds the later one's number when all have left theirs.
    for (int32_t i = 0; i < n; i++) g->before[i] = g->table[g->entry[i]];
    for (int32_t i = 0; i < n; i++) g->table[g->entry[i]] = i;
    for (int32_t i = 0; i < n; i++) twice |= g->table[g->entry[i]] != i;
    for (int32_t i = 0; i < n; i++) g->table[g->entry[i]] = twice ? g->before[i] : g->value[i];
    return twice ? BAD_ENTRY : OK;
}

typedef struct {
    const uint8_t *from;
    const int32_t *ids;
    uint8_t *to;
    uint64_t row_bytes;
    uint32_t rows;  // of the side that ids index
} rows_arguments;

// to[s] = from[ids[s]]; an item is a row.
KERNEL(load_rows) {
    const rows_arguments *g = arguments;
    for (uint32_t s = first; s < last; s++) {
        uint32_t row = (uint32_t)g->ids[s];
        if (row >= g->rows) return BAD_SLOT;
        memcpy(g->to + s * g->row_bytes, g->from + row * g->row_bytes, g->row_bytes);
    }
    return OK;
}

// to[ids[s]] = from[s]; an item is a row.
KERNEL(store_rows) {
    const rows_arguments *g = arguments;
    for (uint32_t s = first; s < last; s++) {
        uint32_t row = (uint32_t)g->ids[s];
        if (row >= g->rows) return BAD_SLOT;
        memcpy(g->to + row * g->row_bytes, g->from + s * g->row_bytes, g->row_bytes);
    }
    return OK;
}
