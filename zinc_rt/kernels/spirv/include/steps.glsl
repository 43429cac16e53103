// A step: 128 elements of a row, four a lane, as canonical-1's dot has them.
#ifndef STEPS_GLSL
#define STEPS_GLSL

const uint STEP = 128u;

// x's elements of a step, 0 past the end of a row of k floats
vec4 step_of(uint64_t x, uint k, uint step) {
    uint first = step * STEP + 4u * lane;
    vec4 values = vec4(0.0);
    if ((k & 3u) == 0u) {
        if (first < k) values = F32x4(x).v[first >> 2];
    } else {
        [[unroll]] for (uint e = 0u; e < 4u; e++) if (first + e < k) values[e] = F32(x).v[first + e];
    }
    return values;
}
#endif
