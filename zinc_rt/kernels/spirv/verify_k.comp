#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"

// VERIFY_K: how many drafted tokens the target agrees with, and the target's token after them. Draft i32[S][K], target
// i32[S][K + 1]. Grid: sequences. One invocation works: the tokens are few.
KERNARG(U32 draft; U32 target; U32RW accept_len; U32RW next_token; uint drafted;)

void main() {
    if (lane != 0u) return;
    uint s = gl_WorkGroupID.x, agreed = 0u;
    U32 draft = row_of(U32, args.draft, s, args.drafted), target = row_of(U32, args.target, s, args.drafted + 1u);
    while (agreed < args.drafted && draft.v[agreed] == target.v[agreed]) agreed++;
    args.accept_len.v[s] = agreed;
    args.next_token.v[s] = target.v[agreed];
}
