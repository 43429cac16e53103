#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "row.glsl"

// SSM_DELTA_NET, the q and k heads at unit length: x * rsqrt(dot(x, x) + eps). conv_out f32[T][columns], unit
// f32[T][heads][width]. Grid: heads, tokens. Four neighbouring elements of 128 are an invocation's.
KERNARG(F32 conv_out; F32RW unit; uint width; uint columns; uint heads; float eps;)

void main() {
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, width = args.width;
    F32 x = row_of(F32, row_of(F32, args.conv_out, token, args.columns), head, width);
    F32RW unit = row_of(F32RW, args.unit, token * args.heads + head, width);
    vec4 squares = vec4(0);
    for (uint n = 4u * lane; n < width; n += 128u) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            if (n + i < width) squares[i] += x.v[n + i] * x.v[n + i];
        }
    }
    put_sum(0u, squares);
    barrier();
    float scale = frsqrt_(sum_of(0u) + args.eps);
    for (uint n = lane; n < width; n += LANES) unit.v[n] = x.v[n] * scale;
}
