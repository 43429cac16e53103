#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "norm.glsl"

// RESIDUAL_RMS_NORM: hidden = x + residual, y = RMS_NORM of it, f32. Grid: 1, rows.
KERNARG(F32 x; F32 residual; F32 weight; F32RW y; F32RW hidden; uint size; float eps;)

uint row() { return gl_WorkGroupID.y * args.size; }
float normed_element(uint k) { return args.x.v[row() + k] + args.residual.v[row() + k]; }

void main() {
    float reciprocal = norm_reciprocal(args.size, args.eps);
    for (uint k = lane; k < args.size; k += LANES) {
        float hidden = normed_element(k);
        args.hidden.v[row() + k] = hidden;
        args.y.v[row() + k] = (hidden * reciprocal) * args.weight.v[k];
    }
}
