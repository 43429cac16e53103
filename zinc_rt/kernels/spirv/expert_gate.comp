#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SHARED_EXPERT's end: out = hidden + down * sigmoid(score).
//
// grid: x blocks of 128 columns, y tokens
// buffers: down f32 [T][width], score f32 [T] or 0, hidden f32 [T][width] or 0, out f32 [T][width]
KERNARG(F32 down; F32 score; F32 hidden; F32RW result; uint width;)

void main() {
    uint first = gl_WorkGroupID.x * 128u, token = gl_WorkGroupID.y;
    for (uint column = first + lane; column < min(first + 128u, args.width); column += LANES) {
        uint at = token * args.width + column;
        float y = args.down.v[at];
        if (present(args.score)) y = y * fsigmoid_(args.score.v[token]);
        if (present(args.hidden)) y = args.hidden.v[at] + y;
        args.result.v[at] = y;
    }
}
