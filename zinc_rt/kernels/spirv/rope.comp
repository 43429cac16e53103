#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// ROPE: in each head the dims [offset, offset + 2 * pairs) turn by rows position[t] of cos and sin f32 (ctx, pairs).
// next and second: bytes from a pair to the next one, and from its first dim to its second. Grid: heads, tokens.
KERNARG(
    F32 x; F32RW y; U32 position; F32 cos; F32 sin;
    uint head_dim; uint offset; uint pairs; uint next; uint second; uint columns;
)

#include "rope.glsl"

void main() {
    uint head = gl_WorkGroupID.y * args.columns + gl_WorkGroupID.x * args.head_dim;
    uint angles = args.position.v[gl_WorkGroupID.y] * args.pairs;
    for (uint pair = lane; pair < args.pairs; pair += LANES) {
        uint first = head + args.offset + pair * (args.next >> 2), second = first + (args.second >> 2);
        vec2 y = turned(args.x.v[first], args.x.v[second], angles + pair);
        args.y.v[first] = y.x;
        args.y.v[second] = y.y;
    }
    // The dims before and behind are copied.
    for (uint other = lane; other < args.head_dim - 2u * args.pairs; other += LANES) {
        uint dim = head + (other < args.offset ? other : other + 2u * args.pairs);
        args.y.v[dim] = args.x.v[dim];
    }
}
