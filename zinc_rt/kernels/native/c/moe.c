// The router's choice of experts and the sum of what they give. rows/moe.py gives moe_topk's argument block,
// kernels/rows/matvec.py expert_sum's.
#include "activations.h"
#include "task.h"

typedef struct {
    const float *logits, *bias;  // [tokens][experts]; [experts] or none
    int32_t *ids;
    float *weights;  // [tokens][choices]
    float *room;     // [tokens][4][experts]: probabilities, scores, of groups: scores, the best
    uint32_t experts, choices, gating, renormalise;
    float scale;
    uint32_t groups, groups_used;
} topk_arguments;

enum { SIGMOID, SOFTMAX, SOFTMAX_SELECTED };  // gating

// dot(x, 1)
static float total(const float *x, uint32_t n) {
    f32x16 acc[8] = {0};
    for (uint32_t i = 0, j = 0; i < n; i += 16, j = (j + 1) % 8)
        acc[j] = acc[j] + (n - i < 16 ? load_some(x + i, n - i) : load16(x + i));
    return tree128(acc);
}

static float largest(const float *x, uint32_t n) {
    float most = -__builtin_inff();
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return x[i];
        if (x[i] > most) most = x[i];
    }
    return most;
}

// Of SOFTMAX_SELECTED, the logits.
static void probabilities(const float *logits, float *p, uint32_t n, uint32_t gating) {
    if (gating == SOFTMAX_SELECTED) {
        for (uint32_t i = 0; i < n; i++) p[i] = logits[i];
        return;
    }
    uint32_t softmax = gating == SOFTMAX;
    f32x16 most = splat_exact(softmax ? largest(logits, n) : 0.0f);
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t some = n - i < 16 ? n - i : 16;
        f32x16 x = load_some(logits + i, some);
        store_some(p + i, softmax ? exp16(x - most) : sigmoid16(x), some);
    }
    if (!softmax) return;
    f32x16 sum = splat_exact(total(p, n));
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t some = n - i < 16 ? n - i : 16;
        store_some(p + i, load_some(p + i, some) / sum, some);
    }
}

// Falling, NaN last: what a stable sort of -score gives.
INLINE int before(float a, float b) { return a > b || (b != b && a == a); }

// ids of the k best of n, best first, ties to the lower index.
static void best(const float *score, uint32_t n, int32_t *ids, uint32_t k) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (found == k && !before(score[i], score[ids[k - 1]])) continue;
        uint32_t at = found < k ? found++ : k - 1;
        for (; at && before(score[i], score[ids[at - 1]]); at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
}

// Rising, NaN last: the two largest of a group, a NaN being larger than all.
static float two_largest(const float *x, uint32_t n) {
    float one = x[0], two = -__builtin_inff();
    for (uint32_t i = 1; i < n; i++) {
        if (!(x[i] <= one) && one == one) {
            two = one;
            one = x[i];
        } else if (!(x[i] <= two) && two == two) {
            two = x[i];
        }
    }
    return n > 1 ? one + two : one;
}

// -infinity for the experts of all but the best groups.
static void only_best_groups(const topk_arguments *g, float *score, float *group_score, int32_t *ids) {
    uint32_t size = g->experts / g->groups;
    for (uint32_t group = 0; group < g->groups; group++) group_score[group] = two_largest(score + group * size, size);
    best(group_score, g->groups, ids, g->groups_used);
    for (uint32_t group = 0; group < g->groups; group++) {
        int eligible = 0;
        for (uint32_t i = 0; i < g->groups_used; i++) eligible |= ids[i] == (int32_t)group;
        for (uint32_t i = 0; !eligible && i < size; i++) score[group * size + i] = -__builtin_inff();
    }
}

// An item is a token.
KERNEL(moe_topk) {
    const topk_arguments *g = arguments;
    uint32_t n = g->experts, k = g->choices;
    for (uint32_t token = first; token < last; token++) {
        float *p = g->room + (size_t)token * 4 * n, *score = p + n;
        int32_t *ids = g->ids + (size_t)token * k;
        float *weights = g->weights + (size_t)token * k;
        probabilities(g->logits + (size_t)token * n, p, n, g->gating);
        for (uint32_t i = 0; i < n; i++) score[i] = g->bias ? p[i] + g->bias[i] : p[i];
        if (g->groups > 1) only_best_groups(g, score, score + n, (int32_t *)(score + 2 * n));
        best(score, n, ids, k);
        for (uint32_t i = 0; i < k; i++) weights[i] = p[ids[i]];
        for (uint32_t i = k; g->gating == SOFTMAX_SELECTED && i--;) weights[i] = exp1(weights[i] - weights[0]);
        if (g->renormalise) {
            float sum = total(weights, k);
            if (sum < 0x1p-14f) sum = 0x1p-14f;
            for (uint32_t i = 0; i < k; i++) weights[i] = weights[i] / sum;
        }
        for (uint32_t i = 0; i < k; i++) weights[i] = weights[i] * g->scale;
    }
    return OK;
}

typedef struct {
    const float *down, *weights, *hidden;  // [tokens][choices][width], [tokens][choices], [tokens][width] or none
    float *y;
    uint32_t width, choices;
} sum_arguments;

// An item is a token: from +0 in selection order, then hidden + sum.
KERNEL(expert_sum) {
    const sum_arguments *g = arguments;
    for (uint32_t token = first; token < last; token++) {
        const float *weights = g->weights + (size_t)token * g->choices;
        for (uint32_t i = 0; i < g->width; i += 16) {
            uint32_t n = g->width - i < 16 ? g->width - i : 16;
            const float *down = g->down + (size_t)token * g->choices * g->width + i;
            f32x16 sum = {0};
            for (uint32_t c = 0; c < g->choices; c++, down += g->width)
                sum = sum + (n < 16 ? load_some(down, n) : load16(down)) * splat_exact(weights[c]);
            size_t at = (size_t)token * g->width + i;
            if (g->hidden) sum = (n < 16 ? load_some(g->hidden + at, n) : load16(g->hidden + at)) + sum;
            store_some(g->y + at, sum, n);
        }
    }
    return OK;
}
