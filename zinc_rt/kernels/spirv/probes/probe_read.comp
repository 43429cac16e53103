#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"

// Reads n quads of dwords, neighbours by neighbouring invocations, and keeps their sum. Grid: any number of
// workgroups, all of which share the work; y has a word for each invocation.
KERNARG(U32x4 x; U32RW y; uint n; uint invocations;)

void main() {
    uint first = gl_GlobalInvocationID.x;
    uvec4 sum = uvec4(0u);
    for (uint i = first; i < args.n; i += args.invocations) sum += args.x.v[i];
    args.y.v[first] = sum.x + sum.y + sum.z + sum.w;
}
