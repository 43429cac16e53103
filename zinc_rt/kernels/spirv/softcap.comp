#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SOFTCAP: y = tanh(x / cap) * cap, f32.
KERNARG(F32 x; F32RW y; uint columns; float cap;)

#include "elementwise.glsl"

void main() {
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = ftanh_(fdiv_(args.x.v[i], args.cap)) * args.cap;
    }
}
