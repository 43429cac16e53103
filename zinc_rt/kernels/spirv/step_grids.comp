#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Grids whose size is a count of the step: an invocation writes one grid, three dwords. `specs`: a number, or
// 1 << 31 and the index of a count. Grid: n / 32 rounded up.
KERNARG(U32 counts; U32 specs; U32RW grids; uint n;)

void main() {
    uint grid = gl_GlobalInvocationID.x;
    if (grid >= args.n) return;
    [[unroll]] for (uint axis = 0u; axis < 3u; axis++) {
        uint spec = args.specs.v[3u * grid + axis];
        args.grids.v[3u * grid + axis] = (spec >> 31) != 0u ? args.counts.v[spec & 3u] : spec;
    }
}
