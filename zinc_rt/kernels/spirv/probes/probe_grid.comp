#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// A grid for a later dispatch: three dwords. One workgroup.
KERNARG(U32RW grid; uint x; uint y; uint z;)

void main() {
    if (lane != 0u) return;
    args.grid.v[0] = args.x;
    args.grid.v[1] = args.y;
    args.grid.v[2] = args.z;
}
