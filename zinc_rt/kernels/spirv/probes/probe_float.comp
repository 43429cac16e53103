#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// What a driver makes of float operations that canonical kernels avoid or need a mode for: row r of y is operation r
// of a, b and c. Grid: n / 32 rounded up, 8.
KERNARG(F32 a; F32 b; F32 c; F32RW y; uint n;)

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= args.n) return;
    float a = args.a.v[i], b = args.b.v[i], c = args.c.v[i], y = 0.0;
    switch (gl_WorkGroupID.y) {
        case 0u: y = a + b; break;
        case 1u: y = a * b; break;
        case 2u: y = a * b + c; break;
        case 3u: y = a / b; break;
        case 4u: y = sqrt(a); break;
        case 5u: y = max(a, b); break;
        case 6u: y = 0.0 + a; break;
        default: y = a != a ? 1.0 : 0.0; break;
    }
    args.y.v[gl_WorkGroupID.y * args.n + i] = y;
}
