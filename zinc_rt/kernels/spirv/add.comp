#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// ADD: y = a + b, f32.
KERNARG(F32 a; F32 b; F32RW y; uint columns;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = args.a.v[i] + args.b.v[i];
    }
}
