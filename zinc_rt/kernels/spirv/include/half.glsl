// Arrays of 16 bits, read by words.
#ifndef HALF_GLSL
#define HALF_GLSL

// Entry i of an array of 16 bits, out of its word
uint halfword(uint word, uint i) { return word >> (16u * (i & 1u)) & 0xffffu; }

// The same entry as f16: half_to_float in fewer operations. One exact product mends the exponent, of denormals too.
float half_of(uint word, uint i) {
    bool high = (i & 1u) != 0u;
    uint magnitude = high ? (word & 0x7fff0000u) >> 3 : (word & 0x7fffu) << 13;
    uint sign = (high ? word : word << 16) & SIGN_BIT, bits = bits_of(f32(magnitude) * f32(0x77800000u));  // * 2^112
    return f32((magnitude >= 0x0f800000u ? bits | INFINITY_BITS : bits) | sign);
}

#endif
