// Floats to halves: f16, or bf16 where BF16 is defined.
#ifndef HALVES_GLSL
#define HALVES_GLSL
#include "rounding.glsl"

#ifdef BF16
const uint FRACTION = 7u, EXPONENT = 8u;
#else
const uint FRACTION = 10u, EXPONENT = 5u;
#endif

// The half nearest to a number, ties to even
uint to_half(float x) {
#ifdef BF16
    uint bits = bits_of(x);
    if ((bits & ~SIGN_BIT) > INFINITY_BITS) return 0x7fc0u;
    return bits + 0x7fffu + (bits >> 16 & 1u) >> 16;
#else
    return float_to_half(x);
#endif
}
#endif
