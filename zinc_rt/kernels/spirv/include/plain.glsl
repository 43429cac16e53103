// Vectors and matrices of the types that stay as in the file. All loads are whole words.
#ifndef PLAIN_GLSL
#define PLAIN_GLSL

const uint PLAIN_F32 = 0u, PLAIN_F16 = 1u, PLAIN_BF16 = 2u;  // as repack.py's PLAIN_DTYPES counts them

// f16 or bf16
float plain_half(uint bits, uint type) { return type == PLAIN_F16 ? half_to_float(bits) : f32(bits << 16); }

float plain_element(uint64_t base, uint64_t index, uint type) {
    if (type == PLAIN_F32) return F32(base + index * 4ul).v[0];
    uint word = U32(base + (index >> 1) * 4ul).v[0];
    return plain_half(word >> (16u * (uint(index) & 1u)) & 0xffffu, type);
}
#endif
