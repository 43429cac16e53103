#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SIGMOID_MUL: y = x * sigmoid(gate), f32.
KERNARG(F32 x; F32 gate; F32RW y; uint columns;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = args.x.v[i] * fsigmoid_(args.gate.v[i]);
    }
}
