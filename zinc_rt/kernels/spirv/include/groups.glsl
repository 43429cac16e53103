// What the packed types share: a block is a group of 1,024 elements. What is left of a row has its scales and high
// bits like a whole group, and its quants in pairs of steps.
//
// Products with d are exact (docs/canonical-1.md), and so is taking 128, 8 or 32 off a small integer.
#ifndef GROUPS_GLSL
#define GROUPS_GLSL
#include "half.glsl"
#include "steps.glsl"

#define STEPS 8u
const uint NIBBLES = 0x0f0f0f0fu, SIGNS = 0x80808080u;

struct Row { uint64_t quants, scales, high; };
Row row_at(uint64_t row) {
    uint64_t w = uint64_t(args.w);
    return Row(w + row * args.row_bytes, w + args.scales_offset + row * args.scales_row_bytes,
               w + args.high_offset + row * args.high_row_bytes);
}
uint whole_blocks(uint k) { return k / (STEPS * STEP); }

// Four bytes below 128, each less `zero`: signed
uint less(uint bytes, uint zero) { return ((bytes | SIGNS) - zero * 0x01010101u) ^ SIGNS; }

vec4 signed_bytes(uint q) { return vec4(int(q << 24) >> 24, int(q << 16) >> 24, int(q << 8) >> 24, int(q) >> 24); }
vec4 unsigned_bytes(uint q) { return vec4(q & 255u, q >> 8 & 255u, q >> 16 & 255u, q >> 24); }

// Four nibbles of a word: even steps have the low ones
uint nibbles(uint word, uint step) { return word >> (4u * (step & 1u)) & NIBBLES; }
#endif
