// q4_0: d * (q - 8), a d for 32 elements
#include "groups.glsl"
const uint QUANTS_BYTES = 512u, SCALES_BYTES = 64u;  // of a group

struct Block { uvec4 quants, scales; };

Block load_block(Row row, uint group) {
    U32x4 quants = U32x4(row.quants + group * QUANTS_BYTES), scales = U32x4(row.scales + group * SCALES_BYTES);
    return Block(quants.v[lane], scales.v[lane >> 3]);
}

vec4 block_weights(Block block, uint step) {
    float d = half_to_float(halfword(block.scales[step >> 1], step));
    return d * bytes(nibbles(block.quants[step >> 1], step), 8);
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    float d = half_to_float(halfword(scales.v[4u * (lane >> 3) + (i >> 1)], i));
    return d * bytes(nibbles(quants.v[32u * (i >> 1) + lane], i), 8);
}
