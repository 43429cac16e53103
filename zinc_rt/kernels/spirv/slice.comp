#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SLICE: y[t][g][0..size) = x[t][g][offset..offset + size) of groups of `group` elements, f32.
// Grid: groups, tokens, size / 512 rounded up.
KERNARG(F32 x; F32RW y; uint group; uint offset; uint size; uint x_columns; uint y_columns;)

const uint COLUMNS = 512u;  // table.py's TUNING.slice_columns

void main() {
    uint from = gl_WorkGroupID.y * args.x_columns + gl_WorkGroupID.x * args.group + args.offset;
    uint to = gl_WorkGroupID.y * args.y_columns + gl_WorkGroupID.x * args.size;
    uint first = gl_WorkGroupID.z * COLUMNS;
    for (uint c = first + lane; c < min(first + COLUMNS, args.size); c += LANES) {
        args.y.v[to + c] = args.x.v[from + c];
    }
}
