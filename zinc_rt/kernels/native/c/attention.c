// FLASH_ATTN, and the attention of MLA_FLASH_ATTN: docs/canonical-1.md, Attention. rows/attention.py gives the
// argument blocks.
//
// An item of `attention` is a part of the work of some neighbouring tokens: some of their heads, some of the chunks
// of keys that they see. Queries of neighbouring tokens in one slot share the loads of keys and values, and where
// there is room for several kv heads a cache row is read from end to end: strips of rows cost twice as much. With
// partials, each chunk's (m, l, o) goes there and `attention_merge` merges them in index order; without, chunks are
// merged here as they come.
#include "activations.h"
#include "exp_log.h"
#include "kv.h"
#include "paging.h"
#include "task.h"
#include "transpose.h"

enum {
    CHUNK = 256,    // absolute positions
    GROUP = 32,     // neighbouring keys in a chunk, with sums of their own
    GROUPS = CHUNK / GROUP,
    QUERIES = 16,   // of a run, at most: rows/attention.py
    WIDEST = 2048,  // head: rows/attention.py
    SPAN = 128,     // accumulators of a dot
    DIMS = 256,     // of values, summed in one pass over their rows
    PARTS = 8,      // into which a token's work is cut, where it can be, before heads are kept together
#ifdef __AVX512F__
    VECTORS = 4,    // of a value, summed side by side: what the registers hold for two queries
#else
    VECTORS = 2,
#endif
};

typedef struct {
    const float *q;
    const uint8_t *kv_k, *kv_pe, *kv_v;  // kv_pe: the last pe_dim dims of a key, or none
    const int32_t *position, *slot, *page_table;
    const float *sinks;  // [heads], or none: a chunk before all others, with m = sink, l = 1, o = 0
    float *out, *partials;  // [token][head][chunk seen][m, l, o], or none
    uint32_t group, kv_heads, head_dim, pe_dim, value_dim;
    float scale, cap;  // cap: of scores, 0 for none
    uint32_t window, slots, pages, page_tokens, cache_rows;
    uint32_t heads_an_item, tokens_an_item, splits, chunks_kept, k_type, v_type;  // types: kv.h, k_type is also kv_pe's
} attention_arguments;

typedef struct {
    uint32_t lo, hi;
} range;

INLINE range meet(range a, range b) {
    range c = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    if (c.hi < c.lo) c.hi = c.lo;
    return c;
}

// A query head of a token, and what it has so far.
typedef struct {
    const float *q;
    float *out;     // where o is kept between chunks, or the first of this query's partials
    range keys;     // visible
    float m, l, a, b;
    int begun;
    range seen;     // of the chunk in work, from its first key
    float *merged;  // where the chunk's o goes
} query;

// Queries of neighbouring tokens in one slot, kv head by kv head.
typedef struct {
    const attention_arguments *args;
    paging paging;
    int32_t slot;
    uint32_t kv_head, kv_count, each;  // queries of each of `kv_count` kv heads
    range keys;                        // that any of them sees
    query query[QUERIES];
} run;

typedef struct {
    uint32_t number;
    range keys;           // that any query sees, from its first
    uint32_t row[CHUNK];  // in the cache
} chunk;

// Code.
static int32_t look_up(const run *r, uint32_t number, chunk *c) {
    uint32_t base = number * CHUNK, page_tokens = r->paging.page_tokens;
    range seen = meet(r->keys, (range){base, base + CHUNK});
    c->number = number;
    c->keys = (range){seen.lo - base, seen.hi - base};
    for (uint32_t j = c->keys.lo; j < c->keys.hi;) {
        int64_t row = cache_row(&r->paging, r->slot, (int32_t)(base + j));
        if (row < 0) return (int32_t)-row;
        uint32_t left = page_tokens - (base + j) % page_tokens;
        for (; left && j < c->keys.hi; left--) c->row[j++] = (uint32_t)row++;
    }
    return OK;
}

// Dims of a key that are in the first cache.
INLINE uint32_t key_width(const attention_arguments *g) { return g->head_dim - g->pe_dim; }

INLINE const uint8_t *key_at(const run *r, uint32_t row, uint32_t kv) {
    const attention_arguments *g = r->args;
    return g->kv_k + ((size_t)row * g->kv_heads + r->kv_head + kv) * kv_bytes(g->k_type, key_width(g));
}

INLINE const uint8_t *value_at(const run *r, uint32_t row, uint32_t kv) {
    const attention_arguments *g = r->args;
    return g->kv_v + ((size_t)row * g->kv_heads + r->kv_head + kv) * kv_bytes(g->v_type, g->value_dim);
}

// Share `kv` of the keys or values of [lo, hi), as far as the chunk has them: each kv head's work fetches a share of
// what comes next, so that rows are fetched from end to end.
INLINE void fetch(const run *r, const chunk *c, uint32_t lo, uint32_t hi, uint32_t kv, int keys) {
    uint32_t count = hi - lo, from = lo + count * kv / r->kv_count, to = lo + count * (kv + 1) / r->kv_count;
    const attention_arguments *g = r->args;
    size_t bytes = r->kv_count * (keys ? kv_bytes(g->k_type, key_width(g)) : kv_bytes(g->v_type, g->value_dim));
    for (uint32_t j = from < c->keys.lo ? c->keys.lo : from; j < to && j < c->keys.hi; j++) {
        const uint8_t *at = keys ? key_at(r, c->row[j], 0) : value_at(r, c->row[j], 0);
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
    }
}

// The tree over 16 neighbouring accumulators.
INLINE f32x16 tree16(f32x16 t[16]) {
    for (int step = 1; step < 16; step *= 2)
        for (int i = 0; i < 16; i += 2 * step) t[i] = t[i] + t[i + step];
    return t[0];
}

// Where the dims of 16 neighbouring keys are, in the first cache and in the second.
typedef struct {
    const uint8_t *key[16], *pe[16];
} key_rows;

// Keys outside the chunk's have the rows of others.
INLINE key_rows rows_of(const run *r, const chunk *c, uint32_t first, uint32_t kv) {
    key_rows at;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t j = first + i, row = c->row[j < c->keys.lo ? c->keys.lo : j < c->keys.hi ? j : c->keys.hi - 1];
        at.key[i] = key_at(r, row, kv);
        at.pe[i] = r->args->pe_dim ? r->args->kv_pe + (size_t)row * kv_bytes(r->args->k_type, r->args->pe_dim) : 0;
    }
    return at;
}

// dims d .. d + 15 of 16 keys of a type; +0 for dims past the last.
INLINE void load_keys_of(uint32_t type, const run *r, const key_rows *at, uint32_t d, f32x16 keys[16]) {
    uint32_t width = key_width(r->args), n = r->args->head_dim - d < 16 ? r->args->head_dim - d : 16;
    if (d + 16 <= width) {
        for (int i = 0; i < 16; i++) keys[i] = kv_load16(type, at->key[i], d);
        return;
    }
    for (int i = 0; i < 16; i++) {
        float dims[16] = {0};
        for (uint32_t j = 0; j < n; j++) dims[j] = d + j < width ? kv_at(type, at->key[i], d + j) : kv_at(type, at->pe[i], d + j - width);
        keys[i] = load16(dims);
    }
}

// The same of the cache's type, lanes are keys.
INLINE void load_keys(const run *r, const key_rows *at, uint32_t d, f32x16 keys[16]) {
    switch (r->args->k_type) {
        case KV_F32: load_keys_of(KV_F32, r, at, d, keys); break;
        case KV_F16: load_keys_of(KV_F16, r, at, d, keys); break;
        default: load_keys_of(KV_Q8_0, r, at, d, keys);
    }
    transpose16_f32(keys);
}

// Products of 16 dims, added up to their accumulators, then the accumulators' tree. An accumulator that starts with
// its first product may be -0 where the definition's is +0; no weight shows it, as exp(-0) is exp(+0).
INLINE f32x16 score_dims(const float *q, uint32_t left, uint32_t spans, f32x16 (*keys)[16]) {
    f32x16 sum[16];
    for (uint32_t b = 0; b < spans; b++, q += SPAN, left -= SPAN) {
        float dims[16];
        const float *at = q;
        if (left < 16) {
            store16(dims, load_some(q, left));
            at = dims;
        }
        for (int i = 0; i < 16; i++) sum[i] = b ? sum[i] + keys[b][i] * splat_exact(at[i]) : keys[b][i] * splat_exact(at[i]);
    }
    return tree16(sum);
}

// scores[query][first ..] of 16 neighbouring keys with one kv head's queries. Lanes are keys, so that a dot's tree is
// additions of vectors. Keys that nobody sees are computed from others' rows: nothing looks at their scores.
static void score_keys(const run *r, const chunk *c, uint32_t first, uint32_t kv, float (*scores)[CHUNK]) {
    const attention_arguments *g = r->args;
    const query *of = r->query + kv * r->each;
    const key_rows rows = rows_of(r, c, first, kv);
    uint32_t dims = g->head_dim;
    f32x16 part[QUERIES][SPAN / 16], keys[WIDEST / SPAN][16];
    for (uint32_t at = 0; at < SPAN && at < dims; at += 16) {  // accumulators at .. at + 15
        uint32_t spans = (dims - at + SPAN - 1) / SPAN;
        for (uint32_t b = 0; b < spans; b++) load_keys(r, &rows, b * SPAN + at, keys[b]);
        if (spans == 1 && at + 16 <= dims)
            for (uint32_t k = 0; k < r->each; k++) part[k][at / 16] = score_dims(of[k].q + at, 16, 1, keys);
        else
            for (uint32_t k = 0; k < r->each; k++) part[k][at / 16] = score_dims(of[k].q + at, dims - at, spans, keys);
    }
    for (uint32_t k = 0; k < r->each; k++) {
        for (uint32_t at = (dims + 15) / 16; at < SPAN / 16; at++) part[k][at] = (f32x16){0};
        f32x16 *p = part[k], low = (p[0] + p[1]) + (p[2] + p[3]), high = (p[4] + p[5]) + (p[6] + p[7]);
        f32x16 score = (low + high) * splat_exact(g->scale);
        if (g->cap != 0) score = tanh16(score / splat_exact(g->cap)) * splat_exact(g->cap);
        store16(scores[kv * r->each + k] + first, score);
    }
}

// Of one query, weights p = exp(score - m) in place of the visible scores, +0 in place of the others. Gives m, the
// largest that is a number: where a score is NaN so is its weight, and with it l and all of o, whatever m is.
static float weigh(float *p, uint32_t lo, uint32_t hi) {
    f32x16 largest = splat(-__builtin_inff());
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (uint32_t j = lo & ~15u; j < hi; j += 16) {
        i32x16 visible = (lane + (int32_t)j >= (int32_t)lo) & (lane + (int32_t)j < (int32_t)hi);
        f32x16 s = load16(p + j);
        largest = choose(visible & (s > largest), s, largest);
    }
    float m = largest[0];
    for (int i = 1; i < 16; i++) m = largest[i] > m ? largest[i] : m;
    for (uint32_t j = 0; j < CHUNK; j += 16) {
        i32x16 visible = (lane + (int32_t)j >= (int32_t)lo) & (lane + (int32_t)j < (int32_t)hi);
        f32x16 weight = {0};
        if (j + 16 > lo && j < hi) weight = choose(visible, exp16(load16(p + j) - splat_exact(m)), weight);
        store16(p + j, weight);
    }
    return m;
}

// l of a chunk: eight groups' running sums, then their tree. Lanes are rows of 16 weights, two to a group.
static float sum_weights(const float *p) {
    f32x16 column[16], sum = {0};
    for (int i = 0; i < 16; i++) column[i] = load16(p + 16 * i);
    transpose16_f32(column);
    for (int i = 0; i < 16; i++) sum = sum + column[i];
    sum = __builtin_shufflevector(sum, sum, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
    for (int i = 0; i < 16; i++) sum = sum + column[i];  // odd rows go on where even ones ended
    return ((sum[1] + sum[3]) + (sum[5] + sum[7])) + ((sum[9] + sum[11]) + (sum[13] + sum[15]));
}

// Begin a query with its head's sink.
static void begin_with(query *q, const float *sink, uint32_t value_dim) {
    q->m = *sink;
    q->l = 1.0f;
    q->begun = 1;
    for (uint32_t i = 0; i < value_dim; i++) q->out[i] = 0.0f;
}

// Merge (m, l) of a query's next chunk; a and b are what its o's are merged with.
static void merge(query *q, float m, float l) {
    if (!q->begun) {
        q->m = m;
        q->l = l;
        return;
    }
    float both = q->m > m ? q->m : m;
    q->a = exp1(q->m - both);
    q->b = exp1(m - both);
    q->l = q->l * q->a + l * q->b;
    q->m = both;
}

// Some dims of a group's values, close together: rows of a cache lie so that they would push each other out of the
// first-level cache, and every pair of queries reads them.
typedef struct {
    float value[GROUP][16 * VECTORS];
} tile;

// `vectors` vectors of dims d .. of values of a type, of n floats each, +0 behind them.
INLINE void load_tile_of(uint32_t type, const run *r, const chunk *c, range keys, uint32_t kv, uint32_t d, int vectors, uint32_t n, tile *to) {
    for (uint32_t j = keys.lo; j < keys.hi; j++) {
        const uint8_t *v = value_at(r, c->row[j], kv);
        for (int i = 0; i < vectors; i++)
            store16(to->value[j % GROUP] + 16 * i, n == 16 ? kv_load16(type, v, d + 16 * i) : kv_load_some(type, v, d, n));
    }
}

INLINE void load_tile(const run *r, const chunk *c, range keys, uint32_t kv, uint32_t d, int vectors, uint32_t n, tile *to) {
    switch (r->args->v_type) {
        case KV_F32: load_tile_of(KV_F32, r, c, keys, kv, d, vectors, n, to); break;
        case KV_F16: load_tile_of(KV_F16, r, c, keys, kv, d, vectors, n, to); break;
        default: load_tile_of(KV_Q8_0, r, c, keys, kv, d, vectors, n, to);
    }
}

// acc += p[j] * v[j] of some keys of a group, for queries first .. first + queries - 1.
INLINE void add_values(
    const tile *of, const float (*p)[CHUNK], uint32_t lo, uint32_t hi, int first, int queries, int vectors,
    f32x16 acc[2][VECTORS]) {
    for (uint32_t j = lo; j < hi; j++)
        for (int i = 0; i < vectors; i++) {
            f32x16 value = load16(of->value[j % GROUP] + 16 * i);
            for (int k = first; k < first + queries; k++) acc[k][i] = acc[k][i] + splat_exact(p[k][j]) * value;
        }
}

// Sums of groups on their way up the tree: at level l, of 2^l groups.
typedef float levels[3][QUERIES][DIMS];

// Merge n dims of a chunk's o into what the query has.
INLINE void merge_values(const query *q, float *out, f32x16 o, uint32_t n) {
    if (q->begun) {
        f32x16 before = n == 16 ? load16(out) : load_some(out, n);
        o = before * splat_exact(q->a) + o * splat_exact(q->b);
    }
    if (n == 16) store16(out, o);
    else store_some(out, o, n);
}

// o of a tile for one or two queries k .., each over the keys that it sees: a binary counter takes it up the tree of
// groups, and the last group's gives the chunk's. The tile's dims are d .., at `place` of the levels' rows.
INLINE void sum_tile(
    const run *r, const tile *of, uint32_t group, uint32_t k, int queries, const float (*p)[CHUNK], uint32_t d, uint32_t place,
    int vectors, uint32_t n, levels *up) {
    const query *q = r->query + k;
    range keys = {group * GROUP, (group + 1) * GROUP}, a = meet(keys, q[0].seen);
    f32x16 acc[2][VECTORS] = {0};
    if (queries == 1) {
        add_values(of, p, a.lo, a.hi, 0, 1, vectors, acc);
    } else {
        range b = meet(keys, q[1].seen), both = meet(a, b);
        if (both.lo == both.hi) {
            add_values(of, p, a.lo, a.hi, 0, 1, vectors, acc);
            add_values(of, p, b.lo, b.hi, 1, 1, vectors, acc);
        } else {
            // The second is of the same token or a later one: it sees no key before the first's, and none fewer behind.
            add_values(of, p, a.lo, both.lo, 0, 1, vectors, acc);
            add_values(of, p, both.lo, both.hi, 0, 2, vectors, acc);
            add_values(of, p, both.hi, b.hi, 1, 1, vectors, acc);
        }
    }
    int level = 0;
    for (; group >> level & 1; level++)
        for (int j = 0; j < queries; j++)
            for (int i = 0; i < vectors; i++) acc[j][i] = load16((*up)[level][k + j] + place + 16 * i) + acc[j][i];
    for (int j = 0; j < queries; j++)
        for (int i = 0; i < vectors; i++) {
            if (level < 3) store16((*up)[level][k + j] + place + 16 * i, acc[j][i]);
            else if (q[j].seen.lo < q[j].seen.hi) merge_values(&q[j], q[j].merged + d + 16 * i, acc[j][i], n);
        }
}

// The same for all queries of a kv head.
INLINE void sum_tiles(
    const run *r, const chunk *c, uint32_t group, uint32_t kv, const float (*p)[CHUNK], uint32_t d, uint32_t place, int vectors,
    uint32_t n, levels *up) {
    tile of;
    load_tile(r, c, meet(c->keys, (range){group * GROUP, (group + 1) * GROUP}), kv, d, vectors, n, &of);
    uint32_t k = kv * r->each, end = k + r->each;
    for (; k + 2 <= end; k += 2) sum_tile(r, &of, group, k, 2, p + k, d, place, vectors, n, up);
    if (k < end) sum_tile(r, &of, group, k, 1, p + k, d, place, vectors, n, up);
}

// o of a chunk, for all queries.
static void sum_values(const run *r, const chunk *c, const float (*p)[CHUNK]) {
    uint32_t all = r->args->value_dim;
    levels up;
    for (uint32_t from = 0; from < all; from += DIMS)
        for (uint32_t group = 0; group < GROUPS; group++)
            for (uint32_t kv = 0; kv < r->kv_count; kv++) {
                if (from == 0) fetch(r, c, (group + 1) * GROUP, (group + 2) * GROUP, kv, 0);
                uint32_t d = from, to = all - from < DIMS ? all : from + DIMS;
                for (; d + 16 * VECTORS <= to; d += 16 * VECTORS) sum_tiles(r, c, group, kv, p, d, d - from, VECTORS, 16, &up);
                for (; d + 16 <= to; d += 16) sum_tiles(r, c, group, kv, p, d, d - from, 1, 16, &up);
                if (d < to) sum_tiles(r, c, group, kv, p, d, d - from, 1, to - d, &up);
            }
}

static void attend_chunk(run *r, const chunk *c) {
    const attention_arguments *g = r->args;
    _Alignas(64) float scores[QUERIES][CHUNK];
    for (uint32_t first = c->keys.lo & ~15u; first < c->keys.hi; first += 16)
        for (uint32_t kv = 0; kv < r->kv_count; kv++) {
            fetch(r, c, first + 16, first + 32, kv, 1);
            score_keys(r, c, first, kv, scores);
        }
    uint32_t base = c->number * CHUNK, queries = r->kv_count * r->each;
    for (uint32_t k = 0; k < queries; k++) {
        query *q = &r->query[k];
        range seen = meet(q->keys, (range){base, base + CHUNK});
        q->seen = (range){0, 0};
        if (seen.lo == seen.hi) continue;
        q->seen = (range){seen.lo - base, seen.hi - base};
        float m = weigh(scores[k], q->seen.lo, q->seen.hi), l = sum_weights(scores[k]);
        q->merged = q->out;
        if (g->partials) {
            q->merged += (size_t)(c->number - q->keys.lo / CHUNK) * (g->value_dim + 2) + 2;
            q->merged[-2] = m;
            q->merged[-1] = l;
        } else {
            merge(q, m, l);
        }
    }
    sum_values(r, c, (const float (*)[CHUNK])scores);
    for (uint32_t k = 0; k < queries; k++) r->query[k].begun |= !g->partials && r->query[k].seen.lo < r->query[k].seen.hi;
}

static void divide(float *out, float by, uint32_t n) {
    f32x16 l = splat_exact(by);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) store16(out + i, load16(out + i) / l);
    if (i < n) store_some(out + i, load_some(out + i, n - i) / l, n - i);
}

// Chunks [from, to). Code.
static int32_t attend(run *r, uint32_t from, uint32_t to) {
    chunk c;
    for (uint32_t number = from; number < to; number++) {
        int32_t why = look_up(r, number, &c);
        if (why) return why;
        attend_chunk(r, &c);
    }
    if (!r->args->partials)
        for (uint32_t k = 0; k < r->kv_count * r->each; k++) divide(r->query[k].out, r->query[k].l, r->args->value_dim);
    return OK;
}

// The keys that a token's queries see.
INLINE range sees(int32_t position, uint32_t window) {
    uint32_t hi = (uint32_t)position + 1;
    return (range){window && hi > window ? hi - window : 0, hi};
}

INLINE uint32_t chunks_of(range keys) { return (keys.hi + CHUNK - 1) / CHUNK - keys.lo / CHUNK; }

// Queries of tokens [begin, end) and heads [head, head + heads) of each of the run's kv heads.
static void fill(run *r, uint32_t begin, uint32_t end, uint32_t head, uint32_t heads) {
    const attention_arguments *g = r->args;
    query *next = r->query;
    r->each = (end - begin) * heads;
    for (uint32_t kv = 0; kv < r->kv_count; kv++)
        for (uint32_t t = begin; t < end; t++)
            for (uint32_t h = 0; h < heads; h++) {
                size_t number = ((size_t)t * g->kv_heads + r->kv_head + kv) * g->group + head + h;
                float *out = g->partials ? g->partials + number * g->chunks_kept * (g->value_dim + 2) : g->out + number * g->value_dim;
                *next = (query){.q = g->q + number * g->head_dim, .out = out, .keys = sees(g->position[t], g->window)};
                if (g->sinks && !g->partials) begin_with(next, g->sinks + number % (g->kv_heads * g->group), g->value_dim);
                next++;
            }
}

// Parts `part`, `part` + `step` and so on of the work of tokens [begin, end), which are neighbours in one slot, or see the
// same keys. Code.
static int32_t attend_parts(run *r, uint32_t begin, uint32_t end, uint32_t part, uint32_t step) {
    const attention_arguments *g = r->args;
    uint32_t blocks = (g->group + g->heads_an_item - 1) / g->heads_an_item, units = g->kv_heads * blocks;
    uint32_t seen = chunks_of(r->keys), splits = seen < g->splits ? seen : g->splits;
    // As many kv heads together as leave PARTS parts.
    uint32_t together = blocks > 1 ? 1 : QUERIES / ((end - begin) * g->heads_an_item), wanted = PARTS < units * splits ? PARTS : units * splits;
    if (together > g->kv_heads) together = g->kv_heads;
    while (together > 1 && (units + together - 1) / together * splits < wanted) together--;
    uint32_t across = (units + together - 1) / together;
    for (; part < across * splits; part += step) {
        uint32_t unit = part % across * together, split = part / across;
        uint32_t head = unit % blocks * g->heads_an_item, heads = g->group - head < g->heads_an_item ? g->group - head : g->heads_an_item;
        r->kv_head = unit / blocks;
        r->kv_count = g->kv_heads - r->kv_head < together ? g->kv_heads - r->kv_head : together;
        fill(r, begin, end, head, heads);
        uint32_t first = r->keys.lo / CHUNK;
        int32_t why = attend(r, first + (uint32_t)((uint64_t)seen * split / splits), first + (uint32_t)((uint64_t)seen * (split + 1) / splits));
        if (why) return why;
    }
    return OK;
}

// Grid: parts, tokens. The item of a token that is no multiple of tokens_an_item is an earlier token's.
KERNEL(attention) {
    const attention_arguments *g = arguments;
    run r;
    r.args = g;
    r.paging = (paging){g->page_table, g->slots, g->pages, g->page_tokens, g->cache_rows};
    for (uint32_t item = first; item < last; item++) {
        uint32_t part = item % grid[0], token = item / grid[0];
        if (token % g->tokens_an_item) continue;
        uint32_t end = token + g->tokens_an_item < grid[1] ? token + g->tokens_an_item : grid[1];
        for (uint32_t t = token; t < end;) {
            uint32_t begin = t;
            r.slot = g->slot[t];
            if ((uint32_t)r.slot >= g->slots) return BAD_SLOT;
            do {
                if ((uint32_t)g->position[t] >= (uint64_t)g->pages * g->page_tokens) return BAD_POSITION;
                range keys = sees(g->position[t], g->window);
                r.keys = (range){t == begin ? keys.lo : r.keys.lo, keys.hi};
                t++;
            } while (t < end && g->slot[t] == r.slot && (uint32_t)g->position[t] - (uint32_t)g->position[t - 1] <= 1);
            int32_t why = attend_parts(&r, begin, t, part, grid[0]);
            if (why) return why;
        }
    }
    return OK;
}

typedef struct {
    const float *partials;
    const int32_t *position;
    float *out;
    const float *sinks;  // [heads], or none
    uint32_t value_dim, window, chunks_kept;
} merge_arguments;

// An item is a head of a token: its chunks' (m, l, o) in index order.
KERNEL(attention_merge) {
    const merge_arguments *g = arguments;
    uint32_t n = g->value_dim;
    for (uint32_t item = first; item < last; item++) {
        range keys = sees(g->position[item / grid[0]], g->window);
        uint32_t chunks = chunks_of(keys);
        if (chunks > g->chunks_kept) return BAD_POSITION;
        const float *part = g->partials + (size_t)item * g->chunks_kept * (n + 2);
        query q = {.out = g->out + (size_t)item * n};
        if (g->sinks) begin_with(&q, g->sinks + item % grid[0], n);
        for (uint32_t c = 0; c < chunks; c++, part += n + 2) {
            merge(&q, part[0], part[1]);
            uint32_t i = 0;
            for (; i + 16 <= n; i += 16) merge_values(&q, q.out + i, load16(part + 2 + i), 16);
            if (i < n) merge_values(&q, q.out + i, load_some(part + 2 + i, n - i), n - i);
            q.begun = 1;
        }
        divide(q.out, q.l, n);
    }
    return OK;
}
