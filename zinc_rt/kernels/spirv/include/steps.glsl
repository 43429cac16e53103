// A step: 128 elements of a row, four a lane, as canonical-1's dot has them.
#ifndef STEPS_GLSL
#define STEPS_GLSL

const uint STEP = 128u;

// Words of this lane, 8 or 16 bytes in a row. By 64 bits: a driver that gathers lane by lane and element by element,
// as those on a CPU do, has half as many to gather; a GPU loads the same bytes.
BUFFER(U64, readonly, uint64_t, 8);
BUFFER(U64x2, readonly, u64vec2, 16);
uvec2 two_words(uint64_t address) { return unpackUint2x32(U64(address).v[0]); }
uvec4 four_words(uint64_t address) {
    u64vec2 words = U64x2(address).v[0];
    return uvec4(unpackUint2x32(words.x), unpackUint2x32(words.y));
}
vec4 four_floats(uint64_t address) { return uintBitsToFloat(four_words(address)); }

// x's elements of a step, 0 past the end of a row of k floats
vec4 step_of(uint64_t x, uint k, uint step) {
    uint first = step * STEP + 4u * lane;
    vec4 values = vec4(0.0);
    if ((k & 3u) == 0u) {
        if (first < k) values = four_floats(x + 4u * first);
    } else {
        [[unroll]] for (uint e = 0u; e < 4u; e++) if (first + e < k) values[e] = F32(x).v[first + e];
    }
    return values;
}
#endif
