#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SCALE: y = (x * factor) * weight[0], f32; a weight of 0 is none.
KERNARG(F32 x; F32RW y; F32 weight; uint columns; float factor;)

#include "elementwise.glsl"

void main() {
    bool weighted = present(args.weight);
    float weight = 0.0;
    if (weighted) weight = args.weight.v[0];
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        float scaled = args.x.v[i] * args.factor;
        args.y.v[i] = weighted ? scaled * weight : scaled;
    }
}
