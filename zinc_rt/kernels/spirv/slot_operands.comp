#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "slot.glsl"

// SAMPLE_SLOTS, after argmax: what SAMPLE reads, from the record of each row's slot. A row whose largest logit is NaN or
// infinite has no candidate: its token is -1, and temperature 0 keeps it so. seed u32[L][2], sampling f32[L][4], choice
// u32[L] are written. Grid: rows. One invocation works.
KERNARG(U32 logits; U32RW token; U32 row_slot; U32 record; U32RW seed; F32RW sampling; U32RW choice; uint vocab;)

void main() {
    if (lane != 0u) return;
    uint row = gl_WorkGroupID.x;
    Slot slot = slot_of(args.record, args.row_slot.v[row]);
    uint likeliest = min(args.token.v[row], args.vocab - 1u);
    uint logit = row_of(U32, args.logits, row, args.vocab).v[likeliest];
    bool none = (logit & INFINITY_BITS) == INFINITY_BITS;
    if (none) args.token.v[row] = 0xffffffffu;
    args.seed.v[2u * row] = slot.seed.x;
    args.seed.v[2u * row + 1u] = slot.seed.y;
    args.sampling.v[4u * row] = none ? 0.0 : slot.temperature;
    args.sampling.v[4u * row + 1u] = slot.top_k;
    args.sampling.v[4u * row + 2u] = slot.top_p;
    args.sampling.v[4u * row + 3u] = slot.min_p;
    args.choice.v[row] = slot.choice;
}
