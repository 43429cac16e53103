#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 16u
#include "kernel.glsl"

// Projections in canonical-1-q8 by weights in blocks of 32: as matvec, but x is records of activations, one for each
// of its rows. Lane b has blocks b, b + 32, ... of a row: integer dots, exact, then float32 between blocks.
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

const uint ROWS = 4u;  // at a time

void main() {
    uint token = gl_WorkGroupID.x, first = gl_WorkGroupID.y * SUM_ROWS;
    uint result = token * args.choices + gl_WorkGroupID.z;
    uint expert = present(args.ids) ? args.ids.v[result] : gl_WorkGroupID.z;
    Activations x = activations(uint64_t(args.x), (args.flags & 16u) != 0u ? result : token, args.k, 32u);
    uint step = lane >> 2, lanes = 8u * (lane & 3u);  // of a group, where this lane's block lies

    uint part = 0u;
    do {
        Row rows[ROWS];
        float sums[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            rows[r] = row_at(uint64_t(expert) * args.n + min(first + part + r, args.n - 1u));
            sums[r] = 0.0;
        }
        uint block = lane;
        if (block * 32u < args.k) do {
            uint group = block / LANES;
            bool whole = group < whole_blocks(args.k);
            uvec4 x0 = x.quants.v[2u * block], x1 = x.quants.v[2u * block + 1u];
            float dx = x.d.v[block];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                int sum = 0;
                [[unroll]] for (uint j = 0u; j < 4u; j++) {
                    sum += dot_of_bytes(x0[j], quants_of(rows[r], group, whole, step, lanes + j));
                    sum += dot_of_bytes(x1[j], quants_of(rows[r], group, whole, step, lanes + 4u + j));
                }
                uint scales = U32(rows[r].scales + group * SCALES_BYTES).v[4u * (lane & 3u) + (step >> 1)];
                sums[r] += float(sum) * (half_of(scales, step) * dx);
            }
            block += LANES;
        } while (block * 32u < args.k);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) put_lane_sum(part + r, sums[r]);
        part += ROWS;
    } while (part < SUM_ROWS && first + part < args.n);
    barrier();
    uint row = first + lane;
    if (lane < SUM_ROWS && row < args.n) {
        F32RW y = F32RW(uint64_t(args.y) + uint64_t(result) * (4u * args.n));
        y.v[row] = scaled_and_biased(sum_of(lane), expert, row);
    }
}
