#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "sample.glsl"

// SAMPLE, second: the weight of each token in the sorted order, exp((logit - best) / temperature); +0 where min_p drops
// it and behind the candidates, up to the next multiple of 16. The best token always stays. pairs u32[L][places][2] of
// sample_sort, weights f32[L][2 * places]. Grid: rows, places / 1024 rounded up.
KERNARG(U32x2 pairs; SamplingRows sampling; F32RW weights; uint vocab; uint places; uint row_bytes;)

float weight_of(uint key, float best, float temperature) {
    return fexp_(fdiv_(sample_logit(key) - best, temperature));
}

void main() {
    uint row = gl_WorkGroupID.x;
    Sampling how = args.sampling.v[row];
    if (is_greedy(how)) return;
    U32x2 pairs = row_of(U32x2, args.pairs, row, args.row_bytes >> 2);
    F32RW weights = row_of(F32RW, args.weights, row, args.row_bytes >> 2);
    uint candidates = sample_candidates(how, args.vocab), padded = (candidates + 15u) & ~15u;
    float best = sample_logit(pairs.v[0].x);
    float least = how.min_p * weight_of(pairs.v[0].x, best, how.temperature);
    for (uint i = 0u; i < 8u; i++) {
        uint place = gl_WorkGroupID.y * 1024u + i * WORKGROUP + lane;
        if (place >= padded) return;
        float weight = 0.0;
        if (place < candidates) {
            weight = weight_of(pairs.v[place].x, best, how.temperature);
            bool dropped = how.min_p > 0.0 && place != 0u && !(weight >= least && !is_nan(weight) && !is_nan(least));
            weight = dropped ? 0.0 : weight;
        }
        weights.v[place] = weight;
    }
}
