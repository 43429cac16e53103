#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 2
#include "kernel.glsl"

// The router's end: probabilities, the k best experts, their weights. A workgroup a token.
//
// buffers: logits f32 [T][experts]; select_bias f32 [experts] or 0; ids i32 [T][k]; weights f32 [T][k]
// constants: experts, at most 1024; k, at most 128; renormalise, 0 or 1; scale, where not to be used 1;
//            gating: 0 sigmoid, 1 softmax, 2 softmax of the chosen logits; groups, of which groups_used are eligible; 1: all experts are
KERNARG(
    F32 logits; F32 select_bias; I32RW ids; F32RW weights;
    uint experts; uint k; uint renormalise; float scale; uint gating; uint groups; uint groups_used;
)

const uint EXPERTS = 1024u, SOFTMAX = 1u, SOFTMAX_SELECTED = 2u;
const int TAKEN = int(0x80000000u), NAN_KEY = TAKEN + 1;  // a NaN comes last
const float SUM_FLOOR = 6.103515625e-5;                   // 2^-14, the smallest normal half

shared float probability[EXPERTS];
shared int keys[2u * EXPERTS];  // of experts, then of groups: the order of their scores
shared int best_key[LANES];
shared uint best_at[LANES];

int key_of(float score) { return is_nan(score) ? NAN_KEY : order_key(no_minus_zero(score)); }
float score_of(int key) { return key == NAN_KEY ? f32(NAN_BITS) : intBitsToFloat(key ^ int(uint(key >> 31) >> 1)); }

// Which of keys[first ...] is the largest, the first of equals. It is taken. In uniform control flow.
uint take_best(uint first, uint count) {
    int key = TAKEN;
    uint at = lane;
    for (uint i = lane; i < count; i += LANES) {
        if (keys[first + i] > key) {
            key = keys[first + i];
            at = i;
        }
    }
    best_key[lane] = key;
    best_at[lane] = at;
    barrier();
    for (uint l = 0u; l < LANES; l++) {
        if (best_key[l] > key || (best_key[l] == key && best_at[l] < at)) {
            key = best_key[l];
            at = best_at[l];
        }
    }
    if (lane == 0u) keys[first + at] = TAKEN;
    barrier();
    return at;
}

// exp(logit - the largest logit), and by their sum; an expert sits where the canonical dot has its element.
void softmax(uint row) {
    float largest = f32(SIGN_BIT | INFINITY_BITS);
    for (uint e = lane; e < args.experts; e += LANES) largest = fmax_(largest, args.logits.v[row + e]);
    best_key[lane] = floatBitsToInt(largest);
    barrier();
    for (uint l = 0u; l < LANES; l++) largest = fmax_(largest, intBitsToFloat(best_key[l]));
    vec4 sums = vec4(0.0);
    for (uint first = 4u * lane; first < args.experts; first += 128u) {
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            if (first + j < args.experts) {
                float e = fexp_(args.logits.v[row + first + j] - largest);
                probability[first + j] = e;
                sums[j] += e;
            }
        }
    }
    put_sum(0u, sums);
    barrier();
    float sum = sum_of(0u);
    for (uint e = lane; e < args.experts; e += LANES) probability[e] = fdiv_(probability[e], sum);
}

// A group is worth the sum of its two best experts, or its only one; NaN where it has one.
void rank_groups() {
    uint size = args.experts / args.groups;
    for (uint group = lane; group < args.groups; group += LANES) {
        int best = TAKEN, second = TAKEN;
        bool has_nan = false;
        for (uint i = 0u; i < size; i++) {
            int key = keys[group * size + i];
            has_nan = has_nan || key == NAN_KEY;
            second = max(second, min(best, key));
            best = max(best, key);
        }
        float score = size > 1u ? score_of(best) + score_of(second) : score_of(best);
        keys[EXPERTS + group] = has_nan ? NAN_KEY : key_of(score);
    }
    barrier();
    for (uint i = 0u; i < args.groups_used; i++) take_best(EXPERTS, args.groups);
    for (uint e = lane; e < args.experts; e += LANES) {
        if (keys[EXPERTS + e / size] != TAKEN) keys[e] = order_key(f32(SIGN_BIT | INFINITY_BITS));
    }
    barrier();
}

void main() {
    uint token = gl_WorkGroupID.x, row = token * args.experts;
    if (args.gating == SOFTMAX) {
        softmax(row);
    } else {
        for (uint e = lane; e < args.experts; e += LANES) {
            float logit = args.logits.v[row + e];
            probability[e] = args.gating == SOFTMAX_SELECTED ? logit : fsigmoid_(logit);
        }
    }
    barrier();
    for (uint e = lane; e < args.experts; e += LANES) {
        float score = probability[e];
        if (present(args.select_bias)) score += args.select_bias.v[e];
        keys[e] = key_of(score);
    }
    barrier();
    if (args.groups > 1u) rank_groups();

    // Choice i is kept where the dot over the choices has element i.
    vec4 weights = vec4(0.0);
    ivec4 ids = ivec4(0);
    float first = 0.0;
    for (uint i = 0u; i < args.k; i++) {
        uint expert = take_best(0u, args.experts);
        if (i == 0u) first = probability[expert];
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            if (i == 4u * lane + j) {
                float p = probability[expert];
                weights[j] = args.gating == SOFTMAX_SELECTED ? fexp_(p - first) : p;
                ids[j] = int(expert);
            }
        }
    }
    put_sum(1u, weights);
    barrier();
    float sum = fmax_(sum_of(1u), SUM_FLOOR);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        uint i = 4u * lane + j;
        if (i < args.k) {
            float weight = args.renormalise != 0u ? fdiv_(weights[j], sum) : weights[j];
            args.weights.v[token * args.k + i] = weight * args.scale;
            args.ids.v[token * args.k + i] = ids[j];
        }
    }
}
