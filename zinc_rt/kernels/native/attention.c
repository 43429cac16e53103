// FLASH_ATTN, and the attention of MLA_FLASH_ATTN: docs/canonical-1.md, Attention. attention_rows.py gives the
// argument blocks.
//
// An item of `attention` is some query heads of one kv head, for some neighbouring tokens, and of the chunks of keys
// they see one share of `splits`. All of its queries whose tokens are neighbours in one slot share the loads of keys
// and values. With partials, each chunk's (m, l, o) goes there and `attention_merge` merges them in index order;
// without, chunks are merged here as they come.
#include "exp_log.h"
#include "paging.h"
#include "task.h"
#include "transpose.h"

enum {
    CHUNK = 256,   // absolute positions
    GROUP = 32,    // of neighbouring keys in a chunk, each with its own sums
    QUERIES = 16,  // of an item, at most: attention_rows.py
    WIDEST = 2048, // head
    SPAN = 128,    // accumulators of a dot
#ifdef __AVX512F__
    VECTORS = 4,   // of a value, summed side by side: what the registers hold for two queries
#else
    VECTORS = 2,
#endif
};

typedef struct {
    const float *q, *kv_k, *kv_pe, *kv_v;  // kv_pe: the last pe_dim dims of a key, or none
    const int32_t *position, *slot, *page_table;
    float *out, *partials;  // [token][head][chunk seen][m, l, o], or none
    uint32_t group, kv_heads, head_dim, pe_dim, value_dim;
    float scale;
    uint32_t window, slots, pages, page_tokens, cache_rows;
    uint32_t heads_an_item, tokens_an_item, splits, chunks_kept;
} attention_arguments;

// A query head of a token, and what it has so far.
typedef struct {
    const float *q;
    float *out;       // where o is kept between chunks, or the first of this query's partials
    uint32_t lo, hi;  // visible keys
    float m, l, a, b;
    int begun;
} query;

// Queries that see neighbouring keys of one slot through one kv head.
typedef struct {
    const attention_arguments *args;
    paging paging;
    int32_t slot;
    uint32_t kv_head, count, lo, hi;  // keys that any of them sees
    query query[QUERIES];
} run;

typedef struct {
    uint32_t lo, hi;     // keys of this chunk that any query sees, from its first key
    uint32_t row[CHUNK]; // in the cache
} chunk;

// Code.
static int32_t look_up(const run *r, uint32_t number, chunk *c) {
    uint32_t base = number * CHUNK, end = base + CHUNK, page_tokens = r->paging.page_tokens;
    c->lo = r->lo > base ? r->lo - base : 0;
    c->hi = (r->hi < end ? r->hi : end) - base;
    for (uint32_t j = c->lo; j < c->hi;) {
        int64_t row = cache_row(&r->paging, r->slot, (int32_t)(base + j));
        if (row < 0) return (int32_t)-row;
        uint32_t left = page_tokens - (base + j) % page_tokens;
        for (; left && j < c->hi; left--) c->row[j++] = (uint32_t)row++;
    }
    return OK;
}

INLINE const float *key_at(const run *r, uint32_t row) {
    const attention_arguments *g = r->args;
    uint32_t width = g->head_dim - g->pe_dim;
    return g->kv_k + (size_t)row * g->kv_heads * width + (size_t)r->kv_head * width;
}

INLINE const float *value_at(const run *r, uint32_t row) {
    const attention_arguments *g = r->args;
    return g->kv_v + (size_t)row * g->kv_heads * g->value_dim + (size_t)r->kv_head * g->value_dim;
}

// n of a key's dims, from d.
INLINE f32x16 key_dims(const run *r, uint32_t row, uint32_t d, uint32_t n) {
    const attention_arguments *g = r->args;
    uint32_t width = g->head_dim - g->pe_dim;
    if (d + n <= width) return n == 16 ? load16(key_at(r, row) + d) : load_some(key_at(r, row) + d, n);
    float dims[16] = {0};
    const float *key = key_at(r, row), *pe = g->kv_pe + (size_t)row * g->pe_dim;
    for (uint32_t i = 0; i < n; i++) dims[i] = d + i < width ? key[d + i] : pe[d + i - width];
    return load16(dims);
}

INLINE void fetch_row(const float *at, uint32_t n, int nearer) {
    for (uint32_t i = 0; i < n; i += 16)
        if (nearer) __builtin_prefetch(at + i, 0, 3);
        else __builtin_prefetch(at + i, 0, 2);
}

// The tree over 16 neighbouring accumulators.
INLINE f32x16 tree16(f32x16 t[16]) {
    for (int step = 1; step < 16; step *= 2)
        for (int i = 0; i < 16; i += 2 * step) t[i] = t[i] + t[i + step];
    return t[0];
}

// scores[query][first ..] of 16 neighbouring keys; lanes are keys, so a dot's tree is additions of vectors. Keys
// outside the chunk's lo and hi are computed from others' rows: nothing looks at their scores.
static void score_keys(const run *r, const chunk *c, uint32_t first, float (*scores)[CHUNK]) {
    const attention_arguments *g = r->args;
    uint32_t row[16], dims = g->head_dim;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t j = first + i;
        row[i] = c->row[j < c->lo ? c->lo : j < c->hi ? j : c->hi - 1];
    }
    f32x16 part[QUERIES][SPAN / 16], keys[WIDEST / SPAN][16];
    for (uint32_t at = 0; at < SPAN; at += 16) {  // accumulators at .. at + 15
        uint32_t spans = dims > at ? (dims - at + SPAN - 1) / SPAN : 0;
        for (uint32_t b = 0; b < spans; b++) {
            uint32_t d = b * SPAN + at, n = dims - d < 16 ? dims - d : 16;
            for (uint32_t i = 0; i < 16; i++) keys[b][i] = key_dims(r, row[i], d, n);
            transpose16(keys[b]);
        }
        for (uint32_t k = 0; k < r->count; k++) {
            f32x16 sum[16];
            for (uint32_t b = 0; b < spans; b++) {
                uint32_t d = b * SPAN + at;
                float q[16];
                store16(q, dims - d < 16 ? load_some(r->query[k].q + d, dims - d) : load16(r->query[k].q + d));
                // An accumulator that starts with its first product may be -0 where the definition's is +0. No
                // weight shows it: exp(-0) is exp(+0).
                for (int i = 0; i < 16; i++) sum[i] = b ? sum[i] + keys[b][i] * splat_exact(q[i]) : keys[b][i] * splat_exact(q[i]);
            }
            part[k][at / 16] = spans ? tree16(sum) : (f32x16){0};
        }
    }
    for (uint32_t k = 0; k < r->count; k++) {
        f32x16 *p = part[k], low = (p[0] + p[1]) + (p[2] + p[3]), high = (p[4] + p[5]) + (p[6] + p[7]);
        store16(scores[k] + first, (low + high) * splat_exact(g->scale));
    }
}

// Of one query, weights p = exp(score - m) in place of the visible scores, +0 in place of the others. Gives m.
static float weigh(float *p, uint32_t lo, uint32_t hi) {
    f32x16 largest = splat(-__builtin_inff());
    i32x16 nan = {0};
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (uint32_t j = lo & ~15u; j < hi; j += 16) {
        i32x16 visible = (lane + (int32_t)j >= (int32_t)lo) & (lane + (int32_t)j < (int32_t)hi);
        f32x16 s = load16(p + j);
        largest = choose(visible & (s > largest), s, largest);
        nan |= visible & (s != s);
    }
    float m = largest[0];
    for (int i = 1; i < 16; i++) m = largest[i] > m ? largest[i] : m;
    for (int i = 0; i < 16; i++) m = nan[i] ? __builtin_nanf("") : m;
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
    transpose16(column);
    for (int i = 0; i < 16; i++) sum = sum + column[i];
    sum = __builtin_shufflevector(sum, sum, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
    for (int i = 0; i < 16; i++) sum = sum + column[i];  // odd rows go on where even ones ended
    return ((sum[1] + sum[3]) + (sum[5] + sum[7])) + ((sum[9] + sum[11]) + (sum[13] + sum[15]));
}

static float larger(float a, float b) { return a != a || b != b ? __builtin_nanf("") : a > b ? a : b; }

// Merge (m, l) of a query's next chunk; a and b are what its o's are merged with.
static void merge(query *q, float m, float l) {
    if (!q->begun) {
        q->m = m;
        q->l = l;
        return;
    }
    float both = larger(q->m, m);
    q->a = exp1(q->m - both);
    q->b = exp1(m - both);
    q->l = q->l * q->a + l * q->b;
    q->m = both;
}

// acc += p[j] * v[j] of keys [from, to) for `queries` queries, `vectors` vectors of n floats each.
INLINE void add_values(
    const run *r, const chunk *c, float *const p[2], uint32_t from, uint32_t to, uint32_t d, int first, int queries,
    int vectors, uint32_t n, f32x16 acc[2][VECTORS]) {
    for (uint32_t j = from; j < to; j++) {
        const float *v = value_at(r, c->row[j]) + d;
        for (int i = 0; i < vectors; i++) {
            f32x16 value = n == 16 ? load16(v + 16 * i) : load_some(v, n);
            for (int k = first; k < first + queries; k++) acc[k][i] = acc[k][i] + splat_exact(p[k][j]) * value;
        }
    }
}

typedef struct {
    uint32_t lo, hi;
} range;

INLINE range meet(range a, range b) {
    range c = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    if (c.hi < c.lo) c.hi = c.lo;
    return c;
}

// o of a chunk, dims d .., for a pair of queries (or one): groups of keys, and their tree by a binary counter.
INLINE void sum_values(
    const run *r, const chunk *c, float *const p[2], const range seen[2], int queries, uint32_t d, int vectors, uint32_t n,
    f32x16 o[2][VECTORS]) {
    f32x16 stack[4][2][VECTORS];
    for (uint32_t number = 0; number < CHUNK / GROUP; number++) {
        range group = {number * GROUP, (number + 1) * GROUP}, a = meet(group, seen[0]);
        f32x16 acc[2][VECTORS] = {0};
        if (queries == 1) {
            add_values(r, c, p, a.lo, a.hi, d, 0, 1, vectors, n, acc);
        } else {
            range b = meet(group, seen[1]), both = meet(a, b);
            if (both.lo == both.hi) {
                add_values(r, c, p, a.lo, a.hi, d, 0, 1, vectors, n, acc);
                add_values(r, c, p, b.lo, b.hi, d, 1, 1, vectors, n, acc);
            } else {
                add_values(r, c, p, a.lo, both.lo, d, 0, 1, vectors, n, acc);
                add_values(r, c, p, b.lo, both.lo, d, 1, 1, vectors, n, acc);
                add_values(r, c, p, both.lo, both.hi, d, 0, 2, vectors, n, acc);
                add_values(r, c, p, both.hi, a.hi, d, 0, 1, vectors, n, acc);
                add_values(r, c, p, both.hi, b.hi, d, 1, 1, vectors, n, acc);
            }
        }
        int level = 0;
        for (; number >> level & 1; level++)
            for (int k = 0; k < queries; k++)
                for (int i = 0; i < vectors; i++) acc[k][i] = stack[level][k][i] + acc[k][i];
        for (int k = 0; k < queries; k++)
            for (int i = 0; i < vectors; i++) stack[level][k][i] = acc[k][i];
    }
    for (int k = 0; k < queries; k++)
        for (int i = 0; i < vectors; i++) o[k][i] = stack[3][k][i];
}

// Merge n dims of a chunk's o into what the query has.
INLINE void merge_values(const query *q, uint32_t d, f32x16 o, uint32_t n) {
    float *out = q->out + d;
    if (q->begun) {
        f32x16 before = n == 16 ? load16(out) : load_some(out, n);
        o = before * splat_exact(q->a) + o * splat_exact(q->b);
    }
    if (n == 16) store16(out, o);
    else store_some(out, o, n);
}

INLINE void pair_values(const run *r, const chunk *c, query *const q[2], float *const p[2], const range seen[2], int queries) {
    uint32_t dims = r->args->value_dim, d = 0;
    f32x16 o[2][VECTORS];
    for (; d + 16 * VECTORS <= dims; d += 16 * VECTORS) {
        sum_values(r, c, p, seen, queries, d, VECTORS, 16, o);
        for (int k = 0; k < queries; k++)
            for (uint32_t i = 0; i < VECTORS; i++) merge_values(q[k], d + 16 * i, o[k][i], 16);
    }
    for (; d + 16 <= dims; d += 16) {
        sum_values(r, c, p, seen, queries, d, 1, 16, o);
        for (int k = 0; k < queries; k++) merge_values(q[k], d, o[k][0], 16);
    }
    if (d < dims) {
        sum_values(r, c, p, seen, queries, d, 1, dims - d, o);
        for (int k = 0; k < queries; k++) merge_values(q[k], d, o[k][0], dims - d);
    }
}

static void one_query(const run *r, const chunk *c, query *const q[2], float *const p[2], const range seen[2]) {
    pair_values(r, c, q, p, seen, 1);
}
static void two_queries(const run *r, const chunk *c, query *const q[2], float *const p[2], const range seen[2]) {
    pair_values(r, c, q, p, seen, 2);
}

// Where a query's part of chunk `number` goes; m and l before it.
INLINE float *partial_at(const attention_arguments *g, float *first, uint32_t lo, uint32_t number) {
    return first + (size_t)(number - lo / CHUNK) * (g->value_dim + 2);
}

static void attend_chunk(run *r, const chunk *c, uint32_t number) {
    const attention_arguments *g = r->args;
    _Alignas(64) float scores[QUERIES][CHUNK];
    for (uint32_t first = c->lo & ~15u; first < c->hi; first += 16) {
        // The values of these keys come while they are scored, and the next keys.
        for (uint32_t j = first < c->lo ? c->lo : first; j < first + 16 && j < c->hi; j++) {
            fetch_row(value_at(r, c->row[j]), g->value_dim, 0);
            if (j + 16 < c->hi) fetch_row(key_at(r, c->row[j + 16]), g->head_dim - g->pe_dim, 1);
        }
        score_keys(r, c, first, scores);
    }
    query *pair[2], partial[2];
    float *weights[2];
    range seen[2];
    int waiting = 0;
    for (uint32_t k = 0; k < r->count; k++) {
        query *q = &r->query[k];
        range visible = meet((range){q->lo, q->hi}, (range){number * CHUNK, (number + 1) * CHUNK});
        if (visible.lo == visible.hi) continue;
        visible.lo -= number * CHUNK;
        visible.hi -= number * CHUNK;
        float m = weigh(scores[k], visible.lo, visible.hi), l = sum_weights(scores[k]);
        if (g->partials) {
            float *at = partial_at(g, q->out, q->lo, number);
            at[0] = m;
            at[1] = l;
            partial[waiting] = (query){.out = at + 2};
            pair[waiting] = &partial[waiting];
        } else {
            merge(q, m, l);
            pair[waiting] = q;
        }
        weights[waiting] = scores[k];
        seen[waiting] = visible;
        if (++waiting < 2) continue;
        two_queries(r, c, pair, weights, seen);
        pair[0]->begun = pair[1]->begun = 1;
        waiting = 0;
    }
    if (waiting) {
        one_query(r, c, pair, weights, seen);
        pair[0]->begun = 1;
    }
}

static int32_t attend(run *r, uint32_t split) {
    const attention_arguments *g = r->args;
    uint32_t begin = r->lo / CHUNK, all = (r->hi + CHUNK - 1) / CHUNK - begin;
    uint32_t from = begin + (uint32_t)((uint64_t)all * split / g->splits);
    uint32_t to = begin + (uint32_t)((uint64_t)all * (split + 1) / g->splits);
    chunk c;
    for (uint32_t number = from; number < to; number++) {
        int32_t why = look_up(r, number, &c);
        if (why) return why;
        attend_chunk(r, &c, number);
    }
    if (g->partials) return OK;
    for (uint32_t k = 0; k < r->count; k++) {
        query *q = &r->query[k];
        uint32_t i = 0, n = g->value_dim;
        f32x16 l = splat_exact(q->l);
        for (; i + 16 <= n; i += 16) store16(q->out + i, load16(q->out + i) / l);
        if (i < n) store_some(q->out + i, load_some(q->out + i, n - i) / l, n - i);
    }
    return OK;
}

// The keys that a token's queries see.
INLINE range sees(int32_t position, uint32_t window) {
    uint32_t hi = (uint32_t)position + 1;
    return (range){window && hi > window ? hi - window : 0, hi};
}

KERNEL(attention) {
    const attention_arguments *g = arguments;
    uint32_t blocks = (g->group + g->heads_an_item - 1) / g->heads_an_item, heads = g->group * g->kv_heads;
    run r;
    r.args = g;
    r.paging = (paging){g->page_table, g->slots, g->pages, g->page_tokens, g->cache_rows};
    for (uint32_t item = first; item < last; item++) {
        uint32_t x = item % grid[0], token = item / grid[0] % grid[1], split = item / grid[0] / grid[1];
        if (token % g->tokens_an_item) continue;  // its item is an earlier one
        uint32_t block = x % blocks * g->heads_an_item, end = token + g->tokens_an_item;
        uint32_t in_block = g->group - block < g->heads_an_item ? g->group - block : g->heads_an_item;
        r.kv_head = x / blocks;
        if (end > grid[1]) end = grid[1];
        for (uint32_t t = token; t < end;) {
            r.slot = g->slot[t];
            r.count = 0;
            if ((uint32_t)r.slot >= g->slots) return BAD_SLOT;
            uint32_t begin = t;
            do {  // tokens that are neighbours in one slot
                if ((uint32_t)g->position[t] >= (uint64_t)g->pages * g->page_tokens) return BAD_POSITION;
                range keys = sees(g->position[t], g->window);
                if (t == begin) r.lo = keys.lo;
                r.hi = keys.hi;
                for (uint32_t h = 0; h < in_block; h++) {
                    size_t head = (size_t)t * heads + r.kv_head * g->group + block + h;
                    float *out = g->partials ? g->partials + head * g->chunks_kept * (g->value_dim + 2) : g->out + head * g->value_dim;
                    r.query[r.count++] = (query){.q = g->q + head * g->head_dim, .out = out, .lo = keys.lo, .hi = keys.hi};
                }
                t++;
            } while (t < end && g->slot[t] == r.slot && g->position[t] == g->position[t - 1] + 1);
            int32_t why = attend(&r, split);
            if (why) return why;
        }
    }
    return OK;
}

typedef struct {
    const float *partials;
    const int32_t *position;
    float *out;
    uint32_t value_dim, window, chunks_kept;
} merge_arguments;

// An item is a head of a token: its chunks' (m, l, o) in index order.
KERNEL(attention_merge) {
    const merge_arguments *g = arguments;
    uint32_t n = g->value_dim;
    for (uint32_t item = first; item < last; item++) {
        range keys = sees(g->position[item / grid[0]], g->window);
        uint32_t chunks = (keys.hi + CHUNK - 1) / CHUNK - keys.lo / CHUNK;
        if (chunks > g->chunks_kept) return BAD_POSITION;
        const float *part = g->partials + (size_t)item * g->chunks_kept * (n + 2);
        query q = {.out = g->out + (size_t)item * n};
        for (uint32_t c = 0; c < chunks; c++, part += n + 2) {
            merge(&q, part[0], part[1]);
            uint32_t i = 0;
            for (; i + 16 <= n; i += 16) merge_values(&q, i, load16(part + 2 + i), 16);
            if (i < n) merge_values(&q, i, load_some(part + 2 + i, n - i), n - i);
            q.begun = 1;
        }
        uint32_t i = 0;
        f32x16 l = splat_exact(q.l);
        for (; i + 16 <= n; i += 16) store16(q.out + i, load16(q.out + i) / l);
        if (i < n) store_some(q.out + i, load_some(q.out + i, n - i) / l, n - i);
    }
    return OK;
}
