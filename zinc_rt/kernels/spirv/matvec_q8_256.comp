#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 32u
#include "kernel.glsl"

// Projections in canonical-1-q8 by weights in blocks of 256, the K types: as matvec_q8_32. The integer dot of a block
// is spread over eight lanes, 32 elements each, that meet in shared memory; lane b has blocks b, b + 32, ... of a row.
KERNARG(
    U32 x; U32 w; F32RW y; U32 scale; U32 bias; U32 ids; U32 row;
    uint n; uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
    uint choices; uint flags; uint zero;
)

#include "activations.glsl"
#include "projection.glsl"
#include "weights.glsl"
#include "quants.glsl"

const uint ROWS = 4u, ALL_ROWS = SUM_ROWS / 2u;  // ROWS of them at a time; sums of dots, behind them of minimums
const uint GROUPS = 8u;                          // at a time: a block for each lane
const uint PARTS = 32u * GROUPS;

shared int dots[ROWS * PARTS], minimums[ROWS * PARTS];

// Of 32 elements: their part of the block's dot (x), and of what its minimums take off (y).
ivec2 part_of(Row row, uint group, bool whole, uvec4 x0, uvec4 x1, int sum) {
    uint step = lane >> 2, lanes = 8u * (lane & 3u);
    int first = 0, second = 0;
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        first += dot_of_bytes(x0[j], quants_of(row, group, whole, step, lanes + j));
        second += dot_of_bytes(x1[j], quants_of(row, group, whole, step, lanes + 4u + j));
    }
    U32 scales = U32(row.scales + group * SCALES_BYTES);
#ifdef WEIGHT_Q6_K
    uint at = 4u * (lane & 3u) + (step >> 2);  // of 16 elements, and two words on of the next 16
    return ivec2(signed_scale(scales.v[at], step) * first + signed_scale(scales.v[at + 2u], step) * second, 0);
#else
    uint entry = halfword(scales.v[4u * (lane & 3u) + (step >> 1)], step);
    return ivec2(int(entry & 255u) * (first + second), int(entry >> 8) * sum);
#endif
}

// d and dmin of a block of a group
vec2 scales_of(Row row, uint group, uint pair) {
    U32 ds = U32(row.scales + group * SCALES_BYTES);
#ifdef WEIGHT_Q6_K
    return vec2(half_of(ds.v[16u + (pair >> 1)], pair), 0.0);
#else
    return vec2(half_of(ds.v[16u + pair], 0u), half_of(ds.v[16u + pair], 1u));
#endif
}

// The integer rounded once: both halves are exact.
float rounded(int i) { return float(i & ~0xffff) + float(i & 0xffff); }

void main() {
    uint token = gl_WorkGroupID.x, first = gl_WorkGroupID.y * ALL_ROWS;
    uint result = token * args.choices + gl_WorkGroupID.z;
    uint expert = present(args.ids) ? args.ids.v[result] : gl_WorkGroupID.z;
    Activations x = activations(uint64_t(args.x), (args.flags & 16u) != 0u ? result : token, args.k, 256u);

    uint part = 0u;
    do {
        Row rows[ROWS];
        vec2 sums[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            rows[r] = row_at(uint64_t(expert) * args.n + min(first + part + r, args.n - 1u));
            sums[r] = vec2(0.0);
        }
        uint group = 0u;
        do {
            uint g = 0u;
            do {
                uint at = (group + g) * 32u + lane;
                bool within = at * 32u < args.k, whole = group + g < whole_blocks(args.k);
                uvec4 x0 = uvec4(0u), x1 = uvec4(0u);
                int sum = 0;
                if (within) {
                    x0 = x.quants.v[2u * at];
                    x1 = x.quants.v[2u * at + 1u];
                    sum = x.sums.v[at];
                }
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    ivec2 parts = ivec2(0);
                    if (within) parts = part_of(rows[r], group + g, whole, x0, x1, sum);
                    dots[r * PARTS + g * 32u + lane] = parts.x;
                    minimums[r * PARTS + g * 32u + lane] = parts.y;
                }
            } while (++g < GROUPS);
            barrier();
            uint block = group * 4u + lane;
            if (block * 256u < args.k) {
                float dx = x.d.v[block];
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    ivec2 total = ivec2(0);
                    [[unroll]] for (uint i = 0u; i < 8u; i++) {
                        total += ivec2(dots[r * PARTS + lane * 8u + i], minimums[r * PARTS + lane * 8u + i]);
                    }
                    vec2 d = scales_of(rows[r], block / 4u, block % 4u);
                    sums[r].x += rounded(total.x) * (d.x * dx);
                    sums[r].y += rounded(total.y) * (d.y * dx);
                }
            }
            barrier();
            group += GROUPS;
        } while (group * ACTIVATIONS_GROUP < args.k);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            put_lane_sum(part + r, sums[r].x);
            put_lane_sum(ALL_ROWS + part + r, sums[r].y);
        }
        part += ROWS;
    } while (part < ALL_ROWS && first + part < args.n);
    barrier();
    uint row = first + lane;
    if (lane < ALL_ROWS && row < args.n) {
        float sum = sum_of(lane);
#ifndef WEIGHT_Q6_K
        sum = sum - sum_of(ALL_ROWS + lane);
#endif
        F32RW y = F32RW(uint64_t(args.y) + uint64_t(result) * (4u * args.n));
        y.v[row] = scaled_and_biased(sum, expert, row);
    }
}
