#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// STREAM_OUT: (slot, token) of each row into the host's ring, in order; the cursor counts entries ever written.
// Grid: one. One invocation writes: the rows are few.
KERNARG(U32 token; U32 out_slot; U32RW ring; U32RW cursor; U32 counts; uint capacity;)

void main() {
    if (lane != 0u) return;
    uint rows = args.counts.v[2], cursor = args.cursor.v[0], at = cursor % args.capacity;
    for (uint row = 0u; row < rows; row++) {
        args.ring.v[2u * at] = args.out_slot.v[row];
        args.ring.v[2u * at + 1u] = args.token.v[row];
        at = at + 1u == args.capacity ? 0u : at + 1u;
    }
    args.cursor.v[0] = cursor + rows;
}
