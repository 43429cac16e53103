#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Of each head of each token, `columns` floats of x into y. x_offset, x_head, x_token: where they begin in a token's
// row, from one head to the next, from one token to the next; of y likewise. Grid: heads, tokens, columns / 512
// rounded up.
KERNARG(
    F32 x; F32RW y;
    uint columns; uint x_offset; uint x_head; uint x_token; uint y_offset; uint y_head; uint y_token;
)

#include "copy.glsl"

void main() {
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, first = gl_WorkGroupID.z * COPY_COLUMNS;
    uint from = token * args.x_token + head * args.x_head + args.x_offset;
    uint to = token * args.y_token + head * args.y_head + args.y_offset;
    for (uint c = first + lane; c < min(first + COPY_COLUMNS, args.columns); c += LANES) {
        args.y.v[to + c] = args.x.v[from + c];
    }
}
