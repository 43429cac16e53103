// q8_0: d * q, a d for 32 elements
#include "groups.glsl"
const uint QUANTS_BYTES = 1024u, SCALES_BYTES = 64u;  // of a group

struct Block { uvec4 quants, more_quants, scales; };

Block load_block(Row row, uint group) {
    uint64_t quants = row.quants + group * QUANTS_BYTES + 16u * lane;
    uint64_t scales = row.scales + group * SCALES_BYTES + 16u * (lane >> 3);
    return Block(four_words(quants), four_words(quants + 16u * LANES), four_words(scales));
}

vec4 block_weights(Block block, uint step) {
    uint q = step < 4u ? block.quants[step & 3u] : block.more_quants[step & 3u];
    return half_of(block.scales[step >> 1], step) * signed_bytes(q ^ SIGNS);
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    uint q = quants.v[(i >> 1) * 64u + 2u * lane + (i & 1u)];
    return half_of(scales.v[4u * (lane >> 3) + (i >> 1)], i) * signed_bytes(q ^ SIGNS);
}
