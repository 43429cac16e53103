#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// gpt-oss's activation: y = (g * sigmoid(1.702 g)) * (u + 1), g = min(gate, 7), u = up within -7 and 7, f32.
KERNARG(F32 gate; F32 up; F32RW y; uint columns;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        float g = fmin_(args.gate.v[i], 7.0), u = fmax_(fmin_(args.up.v[i], 7.0), -7.0);
        args.y.v[i] = (g * fsigmoid_(g * 1.702)) * (u + 1.0);
    }
}
