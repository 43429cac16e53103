// What the packed types share: a block is a group of 1,024 elements. What is left of a row has its scales and high
// bits like a whole group, and its quants in pairs of steps.
//
// Products with d are exact (docs/canonical-1.md), and so is taking 128, 8 or 32 off a small integer.
#ifndef GROUPS_GLSL
#define GROUPS_GLSL
#include "steps.glsl"

#define STEPS 8u
const uint NIBBLES = 0x0f0f0f0fu;

struct Row { uint64_t quants, scales, high; };
Row row_at(uint64_t row) {
    uint64_t w = uint64_t(args.w);
    return Row(w + row * args.row_bytes, w + args.scales_offset + row * args.scales_row_bytes,
               w + args.high_offset + row * args.high_row_bytes);
}
uint whole_blocks(uint k) { return k / (STEPS * STEP); }

// The four bytes of `q` less `zero`
vec4 bytes(uint q, int zero) {
    return vec4(int(q & 255u) - zero, int(q >> 8 & 255u) - zero, int(q >> 16 & 255u) - zero, int(q >> 24) - zero);
}

// Sixteen bits of a word: entry i of an array of them
uint halfword(uint word, uint i) { return word >> (16u * (i & 1u)) & 0xffffu; }

// Four nibbles of a word: even steps have the low ones
uint nibbles(uint word, uint step) { return word >> (4u * (step & 1u)) & NIBBLES; }
#endif
