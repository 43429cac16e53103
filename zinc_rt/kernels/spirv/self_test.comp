#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Each operation that canonical-1 is made of, over operands of the host's: backends/vulkan/self_test.py knows what
// must come out. y[operation][i] of a[i], b[i] and c[i], bits in and out. Grid: n / 32 rounded up, operations.
// `first`: the operation of the grid's first row.
KERNARG(F32 a; F32 b; F32 c; U32RW y; uint n; uint first;)

// Operations in the order of self_test.OPERATIONS.
uint result(uint operation, float a, float b, float c) {
    switch (operation) {
    case 0u: return bits_of(a + b);
    case 1u: return bits_of(a - b);
    case 2u: return bits_of(a * b);
    case 3u: return bits_of(a * b + c);
    case 4u: return bits_of(fdiv_(a, b));
    case 5u: return bits_of(fsqrt_(a));
    case 6u: return bits_of(fexp_(a));
    case 7u: return bits_of(flog_(a));
    case 8u: return bits_of(half_to_float(bits_of(a) & 0xffffu));
    case 9u: return bits_of(fmax_(a, b));
    case 10u: return bits_of(fmin_(a, b));
    case 11u: return uint(a < b) | uint(a == b) << 1 | uint(a > b) << 2;
    case 12u: return bits_of(float(floatBitsToInt(a) >> 8));
    case 13u: return bits_of(frint_(f32(bits_of(a) & 0x807fffffu | 0x47800000u)));  // 2^16 to 2^17
    }
    float sum = 0.0;  // a dot: 0 + a b + a c + a b + a c; a driver may drop the 0, all products being -0
    [[unroll]] for (uint i = 0u; i < 4u; i++) sum += a * ((i & 1u) == 0u ? b : c);
    return bits_of(no_minus_zero(sum));
}

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= args.n) return;
    uint at = gl_WorkGroupID.y * args.n + i;
    args.y.v[at] = result(args.first + gl_WorkGroupID.y, args.a.v[i], args.b.v[i], args.c.v[i]);
}
