// mxfp4: d * (0, 1, 2, 3, 4, 6, 8 or 12, and a sign), a d, which is a power of two as bf16, for 32 elements
#include "groups.glsl"
const uint QUANTS_BYTES = 512u, SCALES_BYTES = 64u;  // of a group

struct Block { uvec4 quants, scales; };

Block load_block(Row row, uint group) {
    uint64_t quants = row.quants + group * QUANTS_BYTES + 16u * lane;
    return Block(four_words(quants), four_words(row.scales + group * SCALES_BYTES + 16u * (lane >> 3)));
}

float value_of(uint nibble) {
    uint low = nibble & 7u;
    int size = int(low < 2u ? low : (2u | low & 1u) << ((low >> 1) - 1u));
    return float((nibble & 8u) != 0u ? -size : size);
}

vec4 values_of(uint q) { return vec4(value_of(q & 15u), value_of(q >> 8 & 15u), value_of(q >> 16 & 15u), value_of(q >> 24)); }

float power_of(uint word, uint i) { return f32(halfword(word, i) << 16); }

vec4 block_weights(Block block, uint step) {
    return power_of(block.scales[step >> 1], step) * values_of(nibbles(block.quants[step >> 1], step));
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    float d = power_of(scales.v[4u * (lane >> 3) + (i >> 1)], i);
    return d * values_of(nibbles(quants.v[32u * (i >> 1) + lane], i));
}
