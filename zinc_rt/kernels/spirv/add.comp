#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// ADD: y = a + b, f32. Grid: columns / 256 rounded up, rows.
KERNARG(F32 a; F32 b; F32RW y; uint columns;)

void main() {
    uint row = gl_WorkGroupID.y * args.columns, first = gl_WorkGroupID.x * 256u;
    for (uint column = first + lane; column < min(first + 256u, args.columns); column += LANES) {
        args.y.v[row + column] = args.a.v[row + column] + args.b.v[row + column];
    }
}
