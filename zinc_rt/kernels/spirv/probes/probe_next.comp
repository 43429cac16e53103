#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// y[i] = x[i + 33, around] + 1: each value comes from another workgroup of the dispatch before. Grid: n / 32.
KERNARG(U32 x; U32RW y; uint n;)

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= args.n) return;
    args.y.v[i] = args.x.v[(i + 33u) % args.n] + 1u;
}
