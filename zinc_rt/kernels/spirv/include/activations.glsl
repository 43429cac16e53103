// Activations in 8 bits, as canonical-1-q8 has them: a record a row of x. k is padded to whole groups of 1,024, by
// zeros.
//
//   quants  i8 [k]
//   d       f32 [k / block], a block being 32 or 256 elements
//   sums    i32 [k / 32]: of 32 quants
#ifndef ACTIVATIONS_GLSL
#define ACTIVATIONS_GLSL

BUFFER(U32x4RW, , uvec4, 16);

const uint ACTIVATIONS_GROUP = 1024u;

struct Activations { U32x4RW quants; F32RW d; I32RW sums; };

// Record `index` of those at `base`
Activations activations(uint64_t base, uint index, uint k, uint block) {
    uint padded = (k + ACTIVATIONS_GROUP - 1u) / ACTIVATIONS_GROUP * ACTIVATIONS_GROUP;
    uint d_bytes = padded / block * 4u, sums_bytes = padded / 32u * 4u;
    uint64_t quants = base + uint64_t(index) * (padded + d_bytes + sums_bytes);
    return Activations(U32x4RW(quants), F32RW(quants + padded), I32RW(quants + padded + d_bytes));
}
#endif
