#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "in_flight.glsl"
#include "best.glsl"

// ARGMAX: the largest logit, ties to the lower id, a NaN above everything (as NumPy has it). `nonfinite`, or 0: the
// first logit that is NaN or infinite, -1 where all are finite. Grid: rows. An invocation looks at every 128th logit.
KERNARG(U32 logits; U32RW token; U32RW nonfinite; uint vocab;)

shared uint firsts[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.x, first = 0xffffffffu;
    U32 logits = row_of(U32, args.logits, row, args.vocab);
    Best best = NO_BEST;
    for (uint begin = lane; begin < args.vocab; begin += IN_FLIGHT * WORKGROUP) {
        uint logit[IN_FLIGHT];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) logit[i] = logits.v[strided(begin, i, args.vocab)];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; i++) {
            uint id = strided(begin, i, args.vocab);  // the last one again changes nothing
            best = better(best, Best(best_key(logit[i], 0x7fffffff), id));
            if ((logit[i] & ~SIGN_BIT) >= INFINITY_BITS) first = min(first, id);
        }
    }
    firsts[lane] = first;
    best = best_of_workgroup(best);
    if (lane != 0u) return;
    args.token.v[row] = best.index;
    if (!present(args.nonfinite)) return;
    for (uint i = 1u; i < WORKGROUP; i++) first = min(first, firsts[i]);
    args.nonfinite.v[row] = first;
}
