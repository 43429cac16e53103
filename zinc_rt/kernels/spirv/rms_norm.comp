#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "norm.glsl"

// RMS_NORM: y = (x * 1 / sqrt(dot(x, x) / size + eps)) * weight over groups of `size` neighbours, f32; a weight of
// 0 is none. Grid: groups of a row, rows.
KERNARG(F32 x; F32 weight; F32RW y; uint size; float eps; uint columns;)

uint group() { return gl_WorkGroupID.y * args.columns + gl_WorkGroupID.x * args.size; }
float normed_element(uint k) { return args.x.v[group() + k]; }

void main() {
    float reciprocal = norm_reciprocal(args.size, args.eps);
    bool weighted = present(args.weight);
    for (uint k = lane; k < args.size; k += LANES) {
        float y = normed_element(k) * reciprocal;
        if (weighted) y *= args.weight.v[k];
        args.y.v[group() + k] = y;
    }
}
