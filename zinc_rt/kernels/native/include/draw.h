// A token from a row of logits: ARGMAX and SAMPLE of one row.
#pragma once
#include "exp_log.h"

// Any lane all ones?
INLINE int any(i32x16 mask) {
    int32_t found = 0;
    for (int i = 0; i < 16; i++) found |= mask[i];
    return found != 0;
}

// NaN in no lane; the largest of each lane, NaN passed over.
typedef struct {
    f32x16 largest;
    i32x16 nan, nonfinite;
} extremes;

INLINE void see(extremes *e, f32x16 v) {
    e->largest = choose(v > e->largest, v, e->largest);
    e->nan |= v != v;
    e->nonfinite |= ((i32x16)v & 0x7f800000) == 0x7f800000;
}

INLINE int is_nonfinite(float v) { return v - v != 0.0f; }

// What NumPy's argmax gives: the first NaN where there is one, else the first of the largest. `nonfinite`, where
// asked for: the first NaN or infinity, or -1.
static int32_t argmax_of(const float *x, uint32_t n, int32_t *nonfinite) {
    extremes e = {splat(-__builtin_inff()), {0}, {0}};
    uint32_t i = 0, token = 0, bad = 0;
    for (; i + 16 <= n; i += 16) see(&e, load16(x + i));
    for (; i < n; i++) see(&e, splat_exact(x[i]));
    float largest = e.largest[0];
    for (int lane = 1; lane < 16; lane++) largest = e.largest[lane] > largest ? e.largest[lane] : largest;
    if (any(e.nan)) while (x[token] == x[token]) token++;
    else while (x[token] != largest) token++;
    if (any(e.nonfinite)) while (!is_nonfinite(x[bad])) bad++;
    if (nonfinite) *nonfinite = any(e.nonfinite) ? (int32_t)bad : -1;
    return (int32_t)token;
}

typedef struct {
    uint32_t key, id;
} candidate;

// Keys rise where logits fall. Zeros are equal, NaN comes last.
INLINE uint32_t key_of(float logit) {
    float x = -logit;
    uint32_t bits;
    if (x != x) return 0xffffffffu;
    if (x == 0.0f) return 0x80000000u;
    memcpy(&bits, &x, 4);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

enum { DIGIT = 11, DIGITS = 1 << DIGIT };  // three digits of a key, the highest of 10 bits

// Candidates in the order of ids, of which the k first by key are wanted: a few more, none of those missing.
static uint32_t gather(const float *x, uint32_t n, uint32_t k, candidate *out) {
    uint32_t count[DIGITS] = {0}, end = DIGITS - 1, found = 0;
    if (k < n) {
        for (uint32_t i = 0; i < n; i++) count[key_of(x[i]) >> (32 - DIGIT)]++;
        for (end = 0; found + count[end] < k; end++) found += count[end];
        found = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = key_of(x[i]);
        if (key >> (32 - DIGIT) <= end) out[found++] = (candidate){key, i};
    }
    return found;
}

// A stable sort by digits, the lowest first. Three passes leave the result in `spare`.
static void sort(candidate *pairs, candidate *spare, uint32_t n) {
    for (int shift = 0; shift < 32; shift += DIGIT) {
        uint32_t at[DIGITS] = {0}, begin = 0;
        for (uint32_t i = 0; i < n; i++) at[pairs[i].key >> shift & (DIGITS - 1)]++;
        for (uint32_t d = 0; d < DIGITS; d++) {
            uint32_t size = at[d];
            at[d] = begin;
            begin += size;
        }
        for (uint32_t i = 0; i < n; i++) spare[at[pairs[i].key >> shift & (DIGITS - 1)]++] = pairs[i];
        candidate *swapped = pairs;
        pairs = spare;
        spare = swapped;
    }
}

// Word 0 of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
static uint32_t philox(uint32_t c0, uint32_t c1, uint32_t k0, uint32_t k1) {
    uint32_t c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t low = 0xD2511F53ull * c0, high = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(high >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)high;
        c2 = (uint32_t)(low >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

// NumPy's order of floats: NaN is larger than all.
INLINE int less(float a, float b) { return a < b || (b != b && a == a); }

// np.searchsorted over rising sums: the first that is not less than x, or with `after` the first larger.
static uint32_t search(const float *sums, uint32_t n, float x, int after) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int passes = after ? !less(x, sums[middle]) : less(sums[middle], x);
        if (passes) low = middle + 1;
        else high = middle;
    }
    return low;
}

// weights[i] = exp((logit - the largest) / temperature) of the sorted candidates.
static void weigh(const float *x, const candidate *sorted, uint32_t n, float temperature, float *weights) {
    float most = x[sorted[0].id];
    for (uint32_t i = 0; i < n; i += 16) {
        float logit[16] = {0};
        uint32_t some = n - i < 16 ? n - i : 16;
        for (uint32_t j = 0; j < some; j++) logit[j] = x[sorted[i + j].id];
        store_some(weights + i, exp16((load16(logit) - splat_exact(most)) / splat_exact(temperature)), some);
    }
}

// What a token is drawn by, and room to sort in: two of n candidates.
typedef struct {
    float temperature, top_k, top_p, min_p;
    uint32_t seed[2], choice, position;
    candidate *pairs, *sorted;
} drawing;

// SAMPLE of one row.
static int32_t draw(const float *x, uint32_t n, const drawing *by) {
    float top_k = by->top_k, top_p = by->top_p, min_p = by->min_p;
    candidate *sorted = by->sorted, *pairs = by->pairs;
    if (by->temperature <= 0.0f) return argmax_of(x, n, 0);
    uint32_t k = n;
    if (top_k > 0.0f && top_k < (float)n) k = top_k < 1.0f ? 1 : (uint32_t)top_k;
    sort(pairs, sorted, gather(x, n, k, pairs));
    n = k;
    float *sums = (float *)pairs;
    weigh(x, sorted, n, by->temperature, sums);
    if (min_p > 0.0f) {  // the first, and those that are large enough
        float least = min_p * sums[0];
        uint32_t kept = 1;
        for (uint32_t i = 1; i < n; i++)
            if (sums[i] >= least) sums[kept++] = sums[i];
        n = kept;
    }
    for (uint32_t i = 1; i < n; i++) sums[i] = sums[i - 1] + sums[i];
    if (top_p < 1.0f) {
        uint32_t enough = search(sums, n, top_p * sums[n - 1], 0) + 1;
        if (enough < n) n = enough;
    }
    uint32_t bits = philox(by->choice, by->position, by->seed[0], by->seed[1]);
    float u = (float)(bits >> 8) * 0x1p-24f;
    uint32_t drawn = search(sums, n, u * sums[n - 1], 1);
    return (int32_t)sorted[drawn < n ? drawn : n - 1].id;
}
