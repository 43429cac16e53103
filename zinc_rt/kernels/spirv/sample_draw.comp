#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "sample.glsl"

// SAMPLE, last: running sums of the weights in order, the cut by top_p, the draw. weights f32[L][2 * places] of
// sample_weights; seed u32[L][2]; choice, position and token u32[L]. Grid: rows. One invocation works: the order of the
// sums is the definition. Greedy rows have their token from argmax already.
KERNARG(U32x2 pairs; SamplingRows sampling; F32x4 weights; U32x2 seed; U32 choice; U32 position; U32RW token; uint vocab;
        uint places; uint row_bytes;)

// Word 0 of Philox4x32-10, counter (counter, 0, 0). Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
uint philox(uvec2 counter, uvec2 key) {
    uvec4 c = uvec4(counter, 0u, 0u);
    for (uint i = 0u; i < 10u; i++) {
        uint high0, low0, high1, low1;
        umulExtended(0xd2511f53u, c.x, high0, low0);
        umulExtended(0xcd9e8d57u, c.z, high1, low1);
        c = uvec4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
        key += uvec2(0x9e3779b9u, 0xbb67ae85u);
    }
    return c.x;
}

// Where running sums end.
const uint ALL = 0u;      // nowhere
const uint REACHED = 1u;  // sum >= limit, or NaN
const uint PASSED = 2u;   // sum > limit

struct Running {
    float sum;   // with the weight that ended it
    uint kept;   // weights that are not 0, without that one
    bool ended;
};

void add(inout Running run, float weight, uint until, float limit) {
    if (run.ended) return;
    run.sum = run.sum + weight;
    if (until == REACHED) run.ended = is_nan(run.sum) || run.sum >= limit;
    if (until == PASSED) run.ended = !is_nan(run.sum) && !is_nan(limit) && run.sum > limit;
    if (!run.ended && bits_of(weight) != 0u) run.kept++;
}

// `vectors` is a multiple of 4.
Running sum_weights(F32x4 weights, uint vectors, uint until, float limit) {
    Running run = Running(0.0, 0u, false);
    for (uint i = 0u; i < vectors && !run.ended; i += 4u) {
        vec4 sixteen[4] = vec4[4](weights.v[i], weights.v[i + 1u], weights.v[i + 2u], weights.v[i + 3u]);
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            [[unroll]] for (uint k = 0u; k < 4u; k++) add(run, sixteen[j][k], until, limit);
        }
    }
    return run;
}

void main() {
    uint row = gl_WorkGroupID.x;
    Sampling how = args.sampling.v[row];
    if (lane != 0u || is_greedy(how)) return;
    F32x4 weights = row_of(F32x4, args.weights, row, args.row_bytes >> 2);
    uint vectors = ((sample_candidates(how, args.vocab) + 15u) >> 4) << 2;
    uint random = philox(uvec2(args.choice.v[row], args.position.v[row]), args.seed.v[row]);
    float u = float(random >> 8) * f32(0x33800000u);  // * 2^-24
    Running all = sum_weights(weights, vectors, ALL, 0.0);
    if (how.top_p < 1.0) {
        float limit = how.top_p * all.sum;
        all = sum_weights(weights, vectors, REACHED, is_nan(limit) ? f32(INFINITY_BITS) : limit);
        all.kept++;
    }
    Running drawn = sum_weights(weights, vectors, PASSED, u * all.sum);
    U32x2 pairs = row_of(U32x2, args.pairs, row, args.row_bytes >> 2);
    args.token.v[row] = pairs.v[min(drawn.kept, all.kept - 1u)].y;
}
