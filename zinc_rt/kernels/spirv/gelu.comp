#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// GELU: y = gelu(x), f32, the tanh form.
KERNARG(F32 x; F32RW y; uint columns;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = fgelu_(args.x.v[i]);
    }
}
