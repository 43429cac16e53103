#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SWIGLU: y = silu(gate) * up, f32.
KERNARG(F32 gate; F32 up; F32RW y; uint columns;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = fsilu_(args.gate.v[i]) * args.up.v[i];
    }
}
