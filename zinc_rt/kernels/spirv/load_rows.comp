#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"

// LOAD_REQUEST_STATE: to[s] = from[ids[s]], a row of `dwords` dwords. Grid: dwords / 128 rounded up, sequences.
KERNARG(U32 from; U32 ids; U32RW to; uint dwords;)

void main() {
    uint i = gl_GlobalInvocationID.x, s = gl_WorkGroupID.y;
    if (i >= args.dwords) return;
    row_of(U32RW, args.to, s, args.dwords).v[i] = row_of(U32, args.from, args.ids.v[s], args.dwords).v[i];
}
