#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"

// RMS_NORM: y = (x * 1 / sqrt(dot(x, x) / size + eps)) * w over groups of `size` neighbours, f32. w or 0.
// Grid: groups of a row, rows.
KERNARG(F32 x; F32 w; F32RW y; uint size; float eps; uint columns;)

void main() {
    uint base = gl_WorkGroupID.y * args.columns + gl_WorkGroupID.x * args.size;
    vec4 squares = vec4(0);
    for (uint k = lane * 4u; k < args.size; k += 128u) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            if (k + i < args.size) {
                float x = args.x.v[base + k + i];
                squares[i] += x * x;
            }
        }
    }
    put_sum(0u, squares);
    barrier();
    float scale = frsqrt_(fdiv_(sum_of(0u), float(args.size)) + args.eps);
    bool weighted = present(args.w);
    for (uint k = lane; k < args.size; k += LANES) {
        float y = args.x.v[base + k] * scale;
        args.y.v[base + k] = weighted ? y * args.w.v[k] : y;
    }
}
