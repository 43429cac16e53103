// Recurrent state: rows of a buffer, one to a sequence. rows/recurrent.py says which form a node has.
#pragma once
#include "task.h"
#include "vec.h"

typedef struct {
    const float *old;            // rows of state, read
    float *made;                 // rows of state, written; may be `old`
    const int32_t *source;       // sequence s reads row source[s], or row s where there are no ids
    const int32_t *target;       // and writes row target[s]
    const int32_t *sequence;     // of each token
    const int32_t *counts;       // the step's
    uint32_t old_rows, made_rows;
} states;

// One sequence's part of a recurrence, and its rows.
typedef struct {
    const states *of;
    uint32_t sequence;
    uint32_t old, made;
} line;

enum { TOKENS = 0, SEQUENCES = 1 };  // of a step's counts

// Code.
INLINE int32_t line_of(const states *s, uint32_t sequence, line *found) {
    uint32_t old = s->source ? (uint32_t)s->source[sequence] : sequence;
    uint32_t made = s->target ? (uint32_t)s->target[sequence] : sequence;
    if (old >= s->old_rows || made >= s->made_rows) return BAD_SLOT;
    for (int32_t t = 0; t < s->counts[TOKENS]; t++)
        if ((uint32_t)s->sequence[t] >= (uint32_t)s->counts[SEQUENCES]) return BAD_SLOT;
    *found = (line){s, sequence, old, made};
    return OK;
}

// The line's next token from t on, or the number of tokens.
INLINE uint32_t next_token(const line *l, uint32_t t) {
    uint32_t tokens = (uint32_t)l->of->counts[TOKENS];
    while (t < tokens && (uint32_t)l->of->sequence[t] != l->sequence) t++;
    return t;
}
