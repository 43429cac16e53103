#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "in_flight.glsl"

// LOGPROBS, after argmax: what log-probabilities subtract from a row's logits, the largest one and
// log(dot(exp(x - largest), 1)), side by side in norm f32[L][2]. best u32[L] of argmax. Grid: rows. An invocation is one
// of the dot's 128 accumulators.
KERNARG(F32 logits; U32 best; F32RW norm; uint vocab;)

shared float sums[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.x;
    F32 logits = row_of(F32, args.logits, row, args.vocab);
    float largest = logits.v[min(args.best.v[row], args.vocab - 1u)], sum = 0.0;
    for (uint begin = lane; begin < args.vocab; begin += IN_FLIGHT * WORKGROUP) {
        float logit[IN_FLIGHT];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) logit[i] = logits.v[strided(begin, i, args.vocab)];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) {
            if (begin + i * WORKGROUP < args.vocab) sum = sum + fexp_(logit[i] - largest);  // never -0
        }
    }
    sums[lane] = sum;
    for (uint count = WORKGROUP / 2u; count > 0u; count >>= 1) {  // neighbours, then neighbouring pairs
        barrier();
        float pair = lane < count ? sums[2u * lane] + sums[2u * lane + 1u] : 0.0;
        barrier();
        if (lane < count) sums[lane] = pair;
    }
    if (lane != 0u) return;
    args.norm.v[2u * row] = largest;
    args.norm.v[2u * row + 1u] = flog_(sums[0]);
}
