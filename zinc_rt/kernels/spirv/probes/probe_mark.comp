#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Every workgroup counts itself: y[its number in the grid] += 1.
KERNARG(U32RW y; uint width; uint height;)

void main() {
    if (lane != 0u) return;
    uint i = (gl_WorkGroupID.z * args.height + gl_WorkGroupID.y) * args.width + gl_WorkGroupID.x;
    args.y.v[i] = args.y.v[i] + 1u;
}
