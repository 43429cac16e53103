// EMBED: an item is a token's row of the table, dequantised.
#include "dequantise.h"
#include "task.h"

typedef struct {
    const int32_t *token_id;
    const uint8_t *table;
    float *y;
    uint64_t row_bytes;  // from one row of the table to the next
    uint32_t type, k, vocabulary;
} embed_arguments;

KERNEL(embed) {
    const embed_arguments *g = arguments;
    for (uint32_t token = first; token < last; token++) {
        uint32_t id = (uint32_t)g->token_id[token];  // a negative one is outside, too
        if (id >= g->vocabulary) return BAD_TOKEN;
        dequantise_run(g->type, g->table + id * g->row_bytes, g->k, g->y + (size_t)token * g->k);
    }
    return OK;
}
