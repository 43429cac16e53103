#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Biases of the selected experts, in place: result[t][c] += bias[ids[t][c]].
//
// grid: x blocks of 256 columns, y tokens, z choices
// buffers: result f32 [T][choices][rows], bias f32 [experts][rows], ids i32 [T][choices]
KERNARG(F32RW result; F32 bias; I32 ids; uint rows; uint choices;)

void main() {
    uint first = gl_WorkGroupID.x * 256u, entry = gl_WorkGroupID.y * args.choices + gl_WorkGroupID.z;
    uint to = entry * args.rows, from = uint(args.ids.v[entry]) * args.rows;
    for (uint column = first + lane; column < min(first + 256u, args.rows); column += LANES) {
        args.result.v[to + column] += args.bias.v[from + column];
    }
}
