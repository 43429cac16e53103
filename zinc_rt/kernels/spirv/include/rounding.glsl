// Rounding to 16 bits, and what quantising to 8 needs besides.
#ifndef ROUNDING_GLSL
#define ROUNDING_GLSL

const uint SMALLEST_AMAX = 0x0d800000u;  // 2^-100: a block of 8 bits below it is zero

// The f16 nearest to a number that is not negative, ties to even
uint half_bits(float x) {
    uint bits = bits_of(x);
    if (bits >= 0x47800000u) return 0x7c00u;
    if (bits >= 0x38800000u) return (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13;
    uint shift = min(126u - (bits >> 23), 25u), mantissa = (bits & 0x7fffffu) | 0x800000u;
    uint kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
    return kept + uint(rest > middle || (rest == middle && (kept & 1u) != 0u));
}

// The f16 nearest to any number
uint float_to_half(float x) {
    uint bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & ~SIGN_BIT;
    if (magnitude > INFINITY_BITS) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
    return sign | half_bits(f32(magnitude));
}

#endif
