#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 32u
#include "kernel.glsl"

// Projections of several tokens: as matvec, but a weight is unpacked once for four of them. For prefill; which tokens
// share a workgroup changes no bit.
//
// grid: x blocks of 4 tokens of the capacity, y blocks of 8 rows
// buffers: x f32 [T][k]; weight, packed as rows/repack.py says; y f32 [T][n]; scale (one), bias (n): 0 where absent;
//          counts i32[3], the first one T
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, flags as matvec has them
KERNARG(
    F32 x; U32 w; F32RW y; U32 scale; U32 bias; U32 counts;
    uint n; uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
    uint flags;
)

#include "projection.glsl"
#include "weights.glsl"

const uint TOKENS = 4u, ROWS = 4u, ALL_ROWS = SUM_ROWS / TOKENS;  // ROWS of them at a time

void main() {
    uint tokens = args.counts.v[0], first_token = gl_WorkGroupID.x * TOKENS, first = gl_WorkGroupID.y * ALL_ROWS;
    if (first_token >= tokens) return;
    uint64_t x[TOKENS];
    [[unroll]] for (uint t = 0u; t < TOKENS; t++) {
        x[t] = uint64_t(args.x) + uint64_t(min(first_token + t, tokens - 1u)) * (4u * args.k);
    }
    uint blocks = whole_blocks(args.k), steps = (args.k + STEP - 1u) / STEP;

    uint part = 0u;
    do {
        Row rows[ROWS];
        vec4 sums[ROWS * TOKENS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            rows[r] = row_at(min(first + part + r, args.n - 1u));
            [[unroll]] for (uint t = 0u; t < TOKENS; t++) sums[r * TOKENS + t] = vec4(0.0);
        }
        uint block = 0u;
        if (blocks > 0u) do {
            Block weights[ROWS];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) weights[r] = load_block(rows[r], block);
            [[unroll]] for (uint i = 0u; i < STEPS; i++) {
                vec4 inputs[TOKENS];
                uint at = 16u * ((block * STEPS + i) * LANES + lane);
                [[unroll]] for (uint t = 0u; t < TOKENS; t++) inputs[t] = four_floats(x[t] + at);
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    vec4 w = block_weights(weights[r], i);
                    [[unroll]] for (uint t = 0u; t < TOKENS; t++) sums[r * TOKENS + t] += inputs[t] * w;
                }
            }
        } while (++block < blocks);
        uint step = blocks * STEPS;
        if (step < steps) do {
            vec4 inputs[TOKENS];
            [[unroll]] for (uint t = 0u; t < TOKENS; t++) inputs[t] = step_of(x[t], args.k, step);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                vec4 w = step_weights(rows[r], step);
                [[unroll]] for (uint t = 0u; t < TOKENS; t++) sums[r * TOKENS + t] += inputs[t] * w;
            }
        } while (++step < steps);
        [[unroll]] for (uint i = 0u; i < ROWS * TOKENS; i++) put_sum(part * TOKENS + i, sums[i]);
        part += ROWS;
    } while (part < ALL_ROWS && first + part < args.n);
    barrier();
    uint row = first + lane / TOKENS, token = first_token + lane % TOKENS;
    if (row < args.n && token < tokens) {
        F32RW y = F32RW(uint64_t(args.y) + uint64_t(token) * (4u * args.n));
        y.v[row] = scaled_and_biased(sum_of(lane), 0u, row);
    }
}
