#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 2
#include "kernel.glsl"

// LAYER_NORM: y = ((x - mean) * r) * weight + bias, r = 1 / sqrt(dot(x - mean, x - mean) / columns + eps), f32; a bias
// of 0 is none. Grid: 1, rows.
KERNARG(F32 x; F32 weight; F32 bias; F32RW y; uint columns; float eps;)

float row_element(uint k) { return args.x.v[gl_WorkGroupID.y * args.columns + k]; }

void main() {
    vec4 sums = vec4(0.0);
    for (uint k = 4u * lane; k < args.columns; k += 4u * LANES) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            float x = row_element(min(k + i, args.columns - 1u));
            sums[i] += k + i < args.columns ? x : 0.0;
        }
    }
    put_sum(0u, sums);
    barrier();
    float mean = fdiv_(sum_of(0u), float(args.columns));
    vec4 squares = vec4(0.0);
    for (uint k = 4u * lane; k < args.columns; k += 4u * LANES) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            float x = row_element(min(k + i, args.columns - 1u)) - mean;
            squares[i] += k + i < args.columns ? x * x : 0.0;
        }
    }
    put_sum(1u, squares);
    barrier();
    float reciprocal = frsqrt_(fdiv_(sum_of(1u), float(args.columns)) + args.eps);
    bool biased = present(args.bias);
    for (uint k = lane; k < args.columns; k += LANES) {
        float y = (row_element(k) - mean) * reciprocal * args.weight.v[k];
        if (biased) y += args.bias.v[k];
        args.y.v[gl_WorkGroupID.y * args.columns + k] = y;
    }
}
