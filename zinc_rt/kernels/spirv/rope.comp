#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// ROPE: in each head the dims [offset, offset + 2 * pairs) turn by rows position[t] of cos and sin (ctx, pairs), f32.
// next and second: bytes from a pair to the next one, and from its first element to its second. Grid: heads, tokens.
KERNARG(F32 x; F32RW y; U32 position; F32 cos; F32 sin; uint head_dim; uint offset; uint pairs; uint next; uint second; uint columns;)

void main() {
    uint head = gl_WorkGroupID.y * args.columns + gl_WorkGroupID.x * args.head_dim;
    uint angles = args.position.v[gl_WorkGroupID.y] * args.pairs;
    for (uint pair = lane; pair < args.pairs; pair += LANES) {
        uint first = head + args.offset + pair * (args.next >> 2), second = first + (args.second >> 2);
        float x0 = args.x.v[first], x1 = args.x.v[second];
        float c = args.cos.v[angles + pair], s = args.sin.v[angles + pair];
        args.y.v[first] = x0 * c - x1 * s;
        args.y.v[second] = x0 * s + x1 * c;
    }
    // The dims before and behind are copied.
    for (uint other = lane; other < args.head_dim - 2u * args.pairs; other += LANES) {
        uint dim = head + (other < args.offset ? other : other + 2u * args.pairs);
        args.y.v[dim] = args.x.v[dim];
    }
}
