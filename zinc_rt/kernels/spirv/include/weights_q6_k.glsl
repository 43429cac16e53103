// q6_k: (d * scale) * (q - 32); d for 256 elements, a signed scale for 16. The two high bits are a plane of their own.
#include "groups.glsl"
const uint QUANTS_BYTES = 512u, SCALES_BYTES = 72u, HIGH_BYTES = 256u;  // of a group

// Bits 2 (step mod 4) and the next of each byte belong to the step.
uint high_bits(uint high, uint step) { return (high >> (2u * (step & 3u)) & 0x03030303u) << 4; }

// A step's of the four that lie in a word
int signed_scale(uint scales, uint step) { return int(scales << (24u - 8u * (step & 3u))) >> 24; }

vec4 dequantised(uint low, uint high, uint scales, uint d, uint step) {
    uint q = nibbles(low, step) | high_bits(high, step);
    return (half_of(d, step >> 1) * float(signed_scale(scales, step))) * signed_bytes(less(q, 32u));
}

struct Block { uvec4 quants; uvec2 scales, ds, high; };

Block load_block(Row row, uint group) {
    uint64_t quants = row.quants + group * QUANTS_BYTES + 16u * lane, scales = row.scales + group * SCALES_BYTES;
    uint64_t high = row.high + group * HIGH_BYTES + 8u * lane;
    return Block(four_words(quants), two_words(scales + 8u * (lane >> 2)), two_words(scales + 64u), two_words(high));
}

vec4 block_weights(Block block, uint step) {
    uint half_ = step >> 2;
    return dequantised(block.quants[step >> 1], block.high[half_], block.scales[half_], block.ds[half_], step);
}

vec4 step_weights(Row row, uint step) {
    uint group = step / STEPS, i = step % STEPS, half_ = i >> 2;
    U32 quants = U32(row.quants + group * QUANTS_BYTES), scales = U32(row.scales + group * SCALES_BYTES);
    U32 high = U32(row.high + group * HIGH_BYTES);
    return dequantised(quants.v[32u * (i >> 1) + lane], high.v[2u * lane + half_], scales.v[2u * (lane >> 2) + half_],
                       scales.v[16u + half_], i);
}
