// By slot records: LOGITS_ADJUST, SAMPLE_SLOTS. And LOGPROBS. kernels/rows/slots.py and rows/sample.py give the
// argument blocks; an item is a row.
#include "draw.h"
#include "slot_record.h"
#include "task.h"

typedef struct {
    const float *logits;
    const int32_t *row_slot, *position;
    const int32_t *record;  // [slots][64]
    const int32_t *counts;  // [penalty_rows][vocab]
    const int32_t *end;     // [ends]
    const int32_t *bias_id;  // [bias_rows][biases], or none
    const float *bias_value;
    const int32_t *mask;  // [mask_rows][dwords of a vocabulary's bits], or none
    const int32_t *mask_row;
    float *adjusted;
    uint32_t vocab, slots, penalty_rows, ends, bias_rows, biases, mask_rows;
} adjust_arguments;

static const float never = -__builtin_inff();

INLINE int32_t forbid(float *x, uint32_t vocab, const int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= (int32_t)vocab) return BAD_TOKEN;
        if (ids[i] >= 0) x[ids[i]] = never;
    }
    return OK;
}

INLINE void penalise(float *x, uint32_t vocab, const int32_t *counts, const int32_t *record) {
    float repetition = slot_float(record, SLOT_REPETITION), presence = slot_float(record, SLOT_PRESENCE);
    float frequency = slot_float(record, SLOT_FREQUENCY);
    for (uint32_t i = 0; i < vocab; i++) {
        int32_t made = counts[i] & 0x7fffffff;
        if (counts[i]) x[i] = x[i] > 0.0f ? x[i] / repetition : x[i] * repetition;
        if (made) x[i] = (x[i] - frequency * (float)made) - presence;
    }
}

static int32_t adjust(const adjust_arguments *g, uint32_t row) {
    uint32_t vocab = g->vocab, slot = (uint32_t)g->row_slot[row];
    if (slot >= g->slots) return BAD_SLOT;
    const int32_t *record = g->record + (size_t)slot * SLOT_DWORDS;
    float *x = g->adjusted + (size_t)row * vocab;
    memcpy(x, g->logits + (size_t)row * vocab, 4 * (size_t)vocab);
    if (g->mask && g->mask_row[row] >= 0) {
        if ((uint32_t)g->mask_row[row] >= g->mask_rows) return BAD_ROW;
        const int32_t *mask = g->mask + (size_t)g->mask_row[row] * ((vocab + 31) / 32);
        for (uint32_t i = 0; i < vocab; i++) x[i] = mask[i / 32] >> (i % 32) & 1 ? x[i] : never;
    }
    int32_t flags = record[SLOT_FLAGS];
    if (g->bias_id && flags & SLOT_FLAG_BIAS) {
        uint32_t of = (uint32_t)record[SLOT_BIAS_ROW], n = (uint32_t)record[SLOT_BIAS_COUNT];
        if (of >= g->bias_rows || n > g->biases) return BAD_ROW;
        const int32_t *ids = g->bias_id + (size_t)of * g->biases;
        for (uint32_t i = 0; i < n; i++) {
            if ((uint32_t)ids[i] >= vocab || (i && ids[i] <= ids[i - 1])) return BAD_TOKEN;
            x[ids[i]] += g->bias_value[(size_t)of * g->biases + i];
        }
    }
    if (flags & SLOT_FLAG_PENALTIES) {
        uint32_t of = (uint32_t)record[SLOT_PENALTY_ROW];
        if (of >= g->penalty_rows) return BAD_ROW;
        penalise(x, vocab, g->counts + (size_t)of * vocab, record);
    }
    if (g->position[row] - record[SLOT_PROMPT_LEN] >= record[SLOT_MIN_TOKENS]) return OK;
    uint32_t stops = (uint32_t)record[SLOT_STOP_COUNT];
    if (stops > 8) return BAD_SLOT;
    int32_t bad = forbid(x, vocab, g->end, g->ends);
    return bad ? bad : forbid(x, vocab, record + SLOT_STOP_IDS, stops);
}

KERNEL(logits_adjust) {
    for (uint32_t row = first; row < last; row++) {
        int32_t bad = adjust(arguments, row);
        if (bad) return bad;
    }
    return OK;
}

typedef struct {
    const float *logits;
    const int32_t *row_slot, *position, *record;
    int32_t *counts, *token;
    candidate *pairs, *spare;  // [rows][vocab]
    uint32_t vocab, slots, penalty_rows;
} sample_arguments;

// Rows that count in one row of counts may be on different threads.
KERNEL(sample_slots) {
    const sample_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) {
        uint32_t slot = (uint32_t)g->row_slot[row];
        if (slot >= g->slots) return BAD_SLOT;
        const int32_t *of = g->record + (size_t)slot * SLOT_DWORDS;
        size_t room = (size_t)row * g->vocab;
        const float *x = g->logits + room;
        drawing by = {slot_float(of, SLOT_TEMPERATURE), slot_float(of, SLOT_TOP_K), slot_float(of, SLOT_TOP_P),
                      slot_float(of, SLOT_MIN_P), {(uint32_t)of[SLOT_SEED], (uint32_t)of[SLOT_SEED + 1]},
                      (uint32_t)of[SLOT_CHOICE], (uint32_t)g->position[row], g->pairs + room, g->spare + room};
        int32_t token = is_nonfinite(x[argmax_of(x, g->vocab, 0)]) ? -1 : draw(x, g->vocab, &by);
        g->token[row] = token;
        int32_t counting = of[SLOT_FLAGS] & (SLOT_FLAG_PENALTIES | SLOT_FLAG_BACKPRESSURE);
        if (token < 0 || counting != SLOT_FLAG_PENALTIES) continue;
        uint32_t penalty_row = (uint32_t)of[SLOT_PENALTY_ROW];
        if (penalty_row >= g->penalty_rows) return BAD_ROW;
        __atomic_fetch_add(g->counts + (size_t)penalty_row * g->vocab + token, 1, __ATOMIC_RELAXED);
    }
    return OK;
}

typedef struct {
    const float *logits;
    const int32_t *token;
    float *logprob;
    int32_t *top_id;  // [rows][top], or none
    float *top_logprob;
    uint32_t vocab, top;
} logprobs_arguments;

// log(dot(exp(x - most), 1))
static float log_sum(const float *x, uint32_t n, float most) {
    f32x16 sums[8] = {{0}};
    for (uint32_t i = 0; i < n; i += 16) {
        float weights[16] = {0};
        uint32_t some = n - i < 16 ? n - i : 16;
        store_some(weights, exp16(load_some(x + i, some) - splat_exact(most)), some);
        sums[i / 16 % 8] += load16(weights);
    }
    return log16(splat_exact(tree128(sums)))[0];
}

// ARGMAX's order: NaN before all. Of equals the one that was there first stays first.
INLINE int before(float a, float b) { return (a != a && b == b) || a > b; }

// The `top` first of x in order: ids, and their logits.
static void likeliest(const float *x, uint32_t n, uint32_t top, int32_t *ids, float *logits) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (found == top && !before(x[i], logits[top - 1])) continue;
        uint32_t at = found < top ? found++ : top - 1;
        for (; at && before(x[i], logits[at - 1]); at--) {
            ids[at] = ids[at - 1];
            logits[at] = logits[at - 1];
        }
        ids[at] = (int32_t)i;
        logits[at] = x[i];
    }
}

KERNEL(logprobs) {
    const logprobs_arguments *g = arguments;
    for (uint32_t row = first; row < last; row++) {
        const float *x = g->logits + (size_t)row * g->vocab;
        int32_t token = g->token[row];
        if (token >= (int32_t)g->vocab) return BAD_TOKEN;
        float most = x[argmax_of(x, g->vocab, 0)], norm = log_sum(x, g->vocab, most);
        g->logprob[row] = token < 0 ? __builtin_nanf("") : (x[token] - most) - norm;
        if (!g->top_id) continue;
        float *logprob = g->top_logprob + (size_t)row * g->top;
        likeliest(x, g->vocab, g->top, g->top_id + (size_t)row * g->top, logprob);
        for (uint32_t i = 0; i < g->top; i++) logprob[i] = (logprob[i] - most) - norm;
    }
    return OK;
}
