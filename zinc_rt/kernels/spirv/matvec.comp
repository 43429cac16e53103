#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 16u
#include "kernel.glsl"

// Projections: y[row] = (dot(x, weight row) * scale) + bias, 16 rows of one token a workgroup.
//
// grid: x tokens (or logit rows), y blocks of 16 rows, z choices of experts
// buffers: x f32; weight, packed as rows/repack.py says; y f32 [grid x][choices][n]; scale (one an expert, or one),
//          bias (n), ids i32 [grid x][choices], row i32 [grid x]: 0 where absent;
//          without ids choice c is expert c
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, choices, flags, 0
// flags: bits 1:0 type of scale, 3:2 of bias (0 f32, 1 f16, 2 bf16); 4: x is [grid x][choices][k]
KERNARG(
    F32 x; U32 w; F32RW y; U32 scale; U32 bias; U32 ids; U32 row;
    uint n; uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
    uint choices; uint flags; uint zero;
)

#include "projection.glsl"
#include "weights.glsl"

// Rows at a time: of three planes, addresses of more than four spill RADV's scalar registers.
#if defined(WEIGHT_Q5_K) || defined(WEIGHT_Q6_K)
const uint ROWS = 4u;
#else
const uint ROWS = 8u;
#endif

void main() {
    uint token = gl_WorkGroupID.x, first = gl_WorkGroupID.y * SUM_ROWS;
    uint result = token * args.choices + gl_WorkGroupID.z;
    uint expert = present(args.ids) ? args.ids.v[result] : gl_WorkGroupID.z;
    uint input_row = (args.flags & 16u) != 0u ? result : present(args.row) ? args.row.v[token] : token;
    uint64_t x = uint64_t(args.x) + uint64_t(input_row) * (4u * args.k);
    uint blocks = whole_blocks(args.k), steps = (args.k + STEP - 1u) / STEP;

    uint part = 0u;
    do {
        Row rows[ROWS];
        vec4 sums[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            rows[r] = row_at(uint64_t(expert) * args.n + min(first + part + r, args.n - 1u));
            sums[r] = vec4(0.0);
        }
        uint block = 0u;
        if (blocks > 0u) do {
            vec4 inputs[STEPS];
            uint64_t at = x + 16u * (block * STEPS * LANES + lane);
            [[unroll]] for (uint i = 0u; i < STEPS; i++) inputs[i] = four_floats(at + 16u * LANES * i);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                Block weights = load_block(rows[r], block);
                [[unroll]] for (uint i = 0u; i < STEPS; i++) sums[r] += inputs[i] * block_weights(weights, i);
            }
        } while (++block < blocks);
        uint step = blocks * STEPS;
        if (step < steps) do {
            vec4 inputs = step_of(x, args.k, step);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) sums[r] += inputs * step_weights(rows[r], step);
        } while (++step < steps);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) put_sum(part + r, sums[r]);
        part += ROWS;
    } while (part < SUM_ROWS && first + part < args.n);
    barrier();
    uint row = first + lane;
    if (lane < SUM_ROWS && row < args.n) {
        F32RW y = F32RW(uint64_t(args.y) + uint64_t(result) * (4u * args.n));
        y.v[row] = scaled_and_biased(sum_of(lane), expert, row);
    }
}
