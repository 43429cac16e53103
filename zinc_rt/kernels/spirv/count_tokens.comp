#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "slot.glsl"

// SAMPLE_SLOTS, last: a token that was drawn for a request with penalties, and without backpressure, counts in its row
// of counts, i32 [rows][vocabulary]; token is -1 for none. Two rows of logits may be of one request: the sum is atomic, and of
// integers, so that its order makes no difference. Grid: rows of logits.
KERNARG(I32 token; U32 row_slot; U32 record; U32RW counts; uint vocabulary;)

void main() {
    uint row = gl_WorkGroupID.x;
    int token = args.token.v[row];
    if (token < 0 || lane != 0u) return;
    Slot slot = slot_of(args.record, args.row_slot.v[row]);
    if ((slot.flags & (FLAG_PENALTIES | FLAG_BACKPRESSURE)) != FLAG_PENALTIES) return;
    atomicAdd(row_of(U32RW, args.counts, slot.penalty_row, args.vocabulary).v[token], 1u);
}
