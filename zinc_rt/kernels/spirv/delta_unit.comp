#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "row.glsl"

// SSM_DELTA_NET, the q and k heads at unit length: x * rsqrt(dot(x, x) + eps). conv_out f32[T][columns], unit
// f32[T][heads][width]; width a multiple of 4, at most 128. Grid: heads, tokens. Four elements an invocation.
KERNARG(F32 conv_out; F32RW unit; uint width; uint columns; uint heads; float eps;)

void main() {
    uint vectors = args.width >> 2, at = gl_WorkGroupID.x * vectors + lane, token = gl_WorkGroupID.y;
    bool mine = lane < vectors;
    vec4 x = mine ? row_of(F32x4, args.conv_out, token, args.columns).v[at] : vec4(0);
    put_sum(0u, x * x);
    barrier();
    float scale = frsqrt_(sum_of(0u) + args.eps);
    if (mine) row_of(F32x4RW, args.unit, token, args.heads * args.width).v[at] = x * scale;
}
