// Weights as signed bytes, for exact integer dots with activations in 8 bits. Behind weights.glsl.
#ifndef QUANTS_GLSL
#define QUANTS_GLSL

// Lane l's four quants of a step, less what the type takes off them. `whole`: of a whole group; else it is the row's
// last, in pairs of steps.
uint quants_of(Row row, uint group, bool whole, uint step, uint l) {
    U32 plane = U32(row.quants + group * QUANTS_BYTES);
#ifdef WEIGHT_Q8_0
    uint in_group = 128u * (step >> 2) + 4u * l + (step & 3u), in_pair = 64u * (step >> 1) + 2u * l + (step & 1u);
    return plane.v[whole ? in_group : in_pair] ^ SIGNS;
#else
    uint q = nibbles(plane.v[whole ? 4u * l + (step >> 1) : 32u * (step >> 1) + l], step);
#if defined(WEIGHT_Q4_0)
    return less(q, 8u);
#elif defined(WEIGHT_Q5_K)
    return q | fifth_bits(U32(row.high + group * HIGH_BYTES).v[l], step);
#elif defined(WEIGHT_Q6_K)
    return less(q | high_bits(U32(row.high + group * HIGH_BYTES).v[2u * l + (step >> 2)], step), 32u);
#else
    return q;
#endif
#endif
}

// A dot over lanes with one accumulator each, as put_sum keeps one with four
void put_lane_sum(uint row, float a) { sums_[row * 33u + lane] = a; }

// The dot of four signed bytes with four
int dot_of_bytes(uint a, uint b) {
    int sum = 0;
    [[unroll]] for (int e = 0; e < 32; e += 8) sum += bitfieldExtract(int(a), e, 8) * bitfieldExtract(int(b), e, 8);
    return sum;
}
#endif
