// q4_0: d * (q - 8), a d for 32 elements
#include "groups.glsl"
const uint QUANTS_BYTES = 512u, SCALES_BYTES = 64u;  // of a group

struct Block { uvec4 quants, scales; };

Block load_block(Row row, uint group) {
    uint64_t quants = row.quants + group * QUANTS_BYTES + 16u * lane;
    return Block(four_words(quants), four_words(row.scales + group * SCALES_BYTES + 16u * (lane >> 3)));
}

vec4 block_weights(Block block, uint step) {
    return half_of(block.scales[step >> 1], step) * signed_bytes(less(nibbles(block.quants[step >> 1], step), 8u));
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    float d = half_of(scales.v[4u * (lane >> 3) + (i >> 1)], i);
    return d * signed_bytes(less(nibbles(quants.v[32u * (i >> 1) + lane], i), 8u));
}
