#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// ROW_SCALE: y[t] = x[t] * table[position[t]], f32.
KERNARG(F32 x; F32RW y; U32 position; F32 table; uint columns;)

#include "elementwise.glsl"

void main() {
    float factor = args.table.v[args.position.v[gl_WorkGroupID.y]];
    for (uint c = first_column(); c < end_column(); c += LANES) {
        uint i = element(c);
        args.y.v[i] = args.x.v[i] * factor;
    }
}
