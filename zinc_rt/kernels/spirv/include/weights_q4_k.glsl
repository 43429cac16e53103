// q4_k and q5_k: (d * scale) * q - dmin * minimum; d and dmin for 256 elements, scale and minimum for 32. q5_k's fifth
// bits are a plane of their own: bit i of a byte belongs to step i.
#include "groups.glsl"
const uint QUANTS_BYTES = 512u, SCALES_BYTES = 80u, HIGH_BYTES = 128u;  // of a group

// `entry`: scale and minimum, a byte each; `ds`: d and dmin, f16 each
vec4 dequantised(uint q, uint entry, uint ds) {
    float scale = half_of(ds, 0u) * float(entry & 255u), minimum = half_of(ds, 1u) * float(entry >> 8);
    return scale * unsigned_bytes(q) - vec4(minimum);
}

uint fifth_bits(uint high, uint step) { return (high >> step & 0x01010101u) << 4; }

struct Block { uvec4 quants, scales, ds; uint high; };

Block load_block(Row row, uint group) {
    uint64_t quants = row.quants + group * QUANTS_BYTES + 16u * lane, scales = row.scales + group * SCALES_BYTES;
    uint high = 0u;
#ifdef WEIGHT_Q5_K
    high = U32(row.high + group * HIGH_BYTES).v[lane];
#endif
    return Block(four_words(quants), four_words(scales + 16u * (lane >> 3)), four_words(scales + 64u), high);
}

vec4 block_weights(Block block, uint step) {
    uint q = nibbles(block.quants[step >> 1], step) | fifth_bits(block.high, step);
    return dequantised(q, halfword(block.scales[step >> 1], step), block.ds[step >> 1]);
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    uint q = nibbles(quants.v[32u * (i >> 1) + lane], i);
#ifdef WEIGHT_Q5_K
    q |= fifth_bits(U32(row.high + group * HIGH_BYTES).v[lane], i);
#endif
    return dequantised(q, halfword(scales.v[4u * (lane >> 3) + (i >> 1)], i), scales.v[16u + (i >> 1)]);
}
