// Recurrent state: rows of a buffer, one to a sequence. rows/recurrent.py says which form a node has.
#pragma once
#include "task.h"
#include "vec.h"

typedef struct {
    const float *old;            // rows of state, read
    float *made;                 // rows of state, written; may be `old`
    const int32_t *source;       // sequence s reads row source[s], or row s where there are no ids
    const int32_t *target;       // and writes row target[s]
    const int32_t *sequence;     // of each token; it never falls
    const int32_t *counts;       // the step's
    uint32_t old_rows, made_rows;
} states;

// One sequence's part of a recurrence: its rows, and its tokens [first, end).
typedef struct {
    const states *of;
    uint32_t old, made;
    uint32_t first, end;
} line;

enum { TOKENS = 0, SEQUENCES = 1 };  // of a step's counts

// The first token whose sequence is `sequence` or a later one, or the number of tokens.
INLINE uint32_t first_token(const states *s, uint32_t sequence) {
    uint32_t low = 0, high = (uint32_t)s->counts[TOKENS];
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((uint32_t)s->sequence[middle] < sequence) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Code.
INLINE int32_t line_of(const states *s, uint32_t sequence, line *found) {
    uint32_t old = s->source ? (uint32_t)s->source[sequence] : sequence;
    uint32_t made = s->target ? (uint32_t)s->target[sequence] : sequence;
    uint32_t tokens = (uint32_t)s->counts[TOKENS], sequences = (uint32_t)s->counts[SEQUENCES];
    if (old >= s->old_rows || made >= s->made_rows) return BAD_SLOT;
    if (tokens && ((uint32_t)s->sequence[0] >= sequences || (uint32_t)s->sequence[tokens - 1] >= sequences)) return BAD_SLOT;
    *found = (line){s, old, made, first_token(s, sequence), first_token(s, sequence + 1)};
    return OK;
}
