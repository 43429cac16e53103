#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Projections of many tokens in wmma-f16 or wmma-bf16. A workgroup computes 32 rows of 32 tokens.
//
// grid: x blocks of 32 tokens of the capacity, y blocks of 32 rows
// buffers: rows of x (round_rows.comp); weight, packed as rows/repack.py says; y f32 [T][n]; scale f32 (one), bias f32 (n): 0
//          where absent; counts i32, the first one T
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, bytes a row of x
KERNARG(
    U32 x; U32 w; F32RW y; F32 scale; F32 bias; U32 counts;
    uint n; uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
    uint x_bytes;
)

#include "wmma.glsl"

void main() {
    uint tokens = args.counts.v[0], token = gl_WorkGroupID.x * LANES + lane, first = gl_WorkGroupID.y * ALL_ROWS;
    if (gl_WorkGroupID.x * LANES >= tokens) return;
    uint64_t x = uint64_t(args.x) + uint64_t(min(token, tokens - 1u)) * args.x_bytes;
    F32RW y = F32RW(uint64_t(args.y) + uint64_t(token) * (4u * args.n));
    uint row = first;
    do {
        float sums[ROWS];
        multiply_rows(row, args.n - row, x, sums);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            if (token >= tokens || row + r >= args.n) continue;
            float sum = sums[r];
            if (present(args.scale)) sum = sum * args.scale.v[0];
            if (present(args.bias)) sum = sum + args.bias.v[row + r];
            y.v[row + r] = sum;
        }
        row += ROWS;
    } while (row < first + ALL_ROWS && row < args.n);
}
