#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// MOE_DOWN_ACC's end: out = hidden + sum over choices, in their order from +0, of down * weight.
//
// grid: x blocks of 128 columns, y tokens
// buffers: down f32 [T][choices][width], weights f32 [T][choices], hidden f32 [T][width] or 0, out f32 [T][width]
KERNARG(F32 down; F32 weights; F32 hidden; F32RW result; uint width; uint choices;)

void main() {
    uint first = gl_WorkGroupID.x * 128u, token = gl_WorkGroupID.y, choice = token * args.choices;
    for (uint column = first + lane; column < min(first + 128u, args.width); column += LANES) {
        float sum = 0.0;
        for (uint i = 0u; i < args.choices; i++) {
            sum += args.down.v[(choice + i) * args.width + column] * args.weights.v[choice + i];
        }
        sum = no_minus_zero(sum);
        uint at = token * args.width + column;
        args.result.v[at] = present(args.hidden) ? args.hidden.v[at] + sum : sum;
    }
}
