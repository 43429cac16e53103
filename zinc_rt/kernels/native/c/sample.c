// From logits to tokens: ARGMAX, SAMPLE, VERIFY_K, STREAM_OUT. kernels/rows/sampling.py gives the argument blocks,
// rows/sample.py SAMPLE's.
#include "draw.h"
#include "slot_record.h"
#include "task.h"

typedef struct {
    const float *logits;
    int32_t *token, *nonfinite;  // either may be none
    uint32_t vocab;
} argmax_arguments;

// An item is a row.
KERNEL(argmax) {
    const argmax_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) {
        int32_t token = argmax_of(g->logits + (size_t)row * g->vocab, g->vocab, g->nonfinite ? g->nonfinite + row : 0);
        if (g->token) g->token[row] = token;
    }
    return OK;
}

typedef struct {
    const float *logits;
    const int32_t *seed;    // [rows][2]
    const float *sampling;  // [rows][temperature, top_k, top_p, min_p]
    const int32_t *choice, *position;
    int32_t *token;
    candidate *pairs, *spare;  // [rows][vocab]
    uint32_t vocab;
} sample_arguments;

// An item is a row.
KERNEL(sample) {
    const sample_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) {
        const float *of = g->sampling + (size_t)row * 4;
        size_t room = (size_t)row * g->vocab;
        drawing by = {of[0], of[1], of[2], of[3], {(uint32_t)g->seed[2 * row], (uint32_t)g->seed[2 * row + 1]},
                      (uint32_t)g->choice[row], (uint32_t)g->position[row], g->pairs + room, g->spare + room};
        g->token[row] = draw(g->logits + room, g->vocab, &by);
    }
    return OK;
}

typedef struct {
    const int32_t *token, *row_slot, *position;
    const int32_t *record;  // [slots][64]
    int32_t *ring;          // [room][4], ir/ring_entry.py
    int32_t *cursor;
    const int32_t *counts;
    uint32_t room, slots;
} stream_out_arguments;

enum { ROWS = 2 };  // of a step's counts

// One item: an entry for every row whose slot has no backpressure, in order, to the ring.
KERNEL(stream_out) {
    const stream_out_arguments *g = arguments;
    for (int32_t row = 0; row < g->counts[ROWS]; row++) {
        uint32_t slot = (uint32_t)g->row_slot[row], cursor = (uint32_t)*g->cursor;
        if (slot >= g->slots) return BAD_SLOT;
        const int32_t *of = g->record + (size_t)slot * SLOT_DWORDS;
        uint32_t flags = (uint32_t)of[SLOT_FLAGS], logprobs = (uint32_t)of[SLOT_LOGPROBS] + 1;
        if (flags & SLOT_FLAG_BACKPRESSURE) continue;
        int32_t *entry = g->ring + (size_t)4 * (cursor % g->room);
        entry[0] = (int32_t)((uint32_t)of[SLOT_EPOCH] << 10 | slot);
        entry[1] = g->position[row];
        entry[2] = g->token[row];
        entry[3] = (int32_t)((flags & 0xff) | (logprobs & 0xff) << 8 | (uint32_t)row << 16);
        *g->cursor = (int32_t)(cursor + 1);
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
