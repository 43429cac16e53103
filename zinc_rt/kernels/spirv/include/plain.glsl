// Vectors and matrices of the types that stay as in the file. All loads are whole words.
#ifndef PLAIN_GLSL
#define PLAIN_GLSL
#include "half.glsl"

const uint PLAIN_F32 = 0u, PLAIN_F16 = 1u, PLAIN_BF16 = 2u;  // as repack.py's PLAIN_DTYPES counts them

// Entry i of an array of f16 or bf16, out of its word
float plain_half(uint word, uint i, uint type) {
    return type == PLAIN_F16 ? half_of(word, i) : f32(halfword(word, i) << 16);
}

float plain_element(uint64_t base, uint64_t index, uint type) {
    if (type == PLAIN_F32) return F32(base + index * 4ul).v[0];
    return plain_half(U32(base + (index >> 1) * 4ul).v[0], uint(index), type);
}
#endif
