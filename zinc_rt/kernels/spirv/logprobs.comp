#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "in_flight.glsl"
#include "best.glsl"

// LOGPROBS, last: the token's log-probability, NaN for token -1, and the likeliest tokens in ARGMAX's order: as many
// passes, each for the best behind the one before. norm f32[L][2] of log_sum; top_id u32[L][top] and top_logprob
// f32[L][top], or both 0. Grid: rows. An invocation looks at every 128th logit.
KERNARG(U32 logits; I32 token; F32 norm; F32RW logprob; U32RW top_id; F32RW top_logprob; uint vocab; uint top;)

float logprob_of(float logit, uint row) { return (logit - args.norm.v[2u * row]) - args.norm.v[2u * row + 1u]; }

void main() {
    uint row = gl_WorkGroupID.x;
    U32 logits = row_of(U32, args.logits, row, args.vocab);
    int token = args.token.v[row];
    if (lane == 0u) {
        float logit = f32(logits.v[uint(clamp(token, 0, int(args.vocab) - 1))]);
        args.logprob.v[row] = token < 0 ? f32(NAN_BITS) : logprob_of(logit, row);
    }
    if (!present(args.top_id)) return;
    Best last = Best(0x7fffffff, 0u);  // above all, as a NaN's key is one less
    for (uint place = 0u; place < args.top; place++) {
        Best best = NO_BEST;
        for (uint begin = lane; begin < args.vocab; begin += IN_FLIGHT * WORKGROUP) {
            uint logit[IN_FLIGHT];
            [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) logit[i] = logits.v[strided(begin, i, args.vocab)];
            [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) {
                Best one = Best(best_key(logit[i], 0x7ffffffe), strided(begin, i, args.vocab));
                if (is_better(last, one)) best = better(best, one);  // the last id again changes nothing
            }
        }
        last = best_of_workgroup(best);
        if (lane == 0u) {
            args.top_id.v[row * args.top + place] = last.index;
            float logit = f32(logits.v[min(last.index, args.vocab - 1u)]);
            args.top_logprob.v[row * args.top + place] = logprob_of(logit, row);
        }
    }
}
