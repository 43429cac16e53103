#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Projections of the selected experts in wmma-f16 or wmma-bf16. A workgroup computes 32 rows of one expert for a tile of up to 32 of its
// pairs (sort_experts.comp).
//
// grid: x slots of tiles, y blocks of 32 rows
// buffers: rows of x (round_rows.comp), one a token or one a pair; weight, packed as rows/repack.py says, an expert's n rows
//          after the other; y f32 [pairs][n]; routes (sort_experts.comp); scale f32 (experts), bias f32 (experts, n): 0 where absent
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, bytes a row of x, ceil(2^31 / pairs to
//            a row of x), bytes of the slots
KERNARG(
    U32 x; U32 w; F32RW y; U32 routes; F32 scale; F32 bias;
    uint n; uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
    uint x_bytes; uint reciprocal; uint slot_bytes;
)

#include "wmma.glsl"

void main() {
    uint slot = 4u * gl_WorkGroupID.x, first = gl_WorkGroupID.y * ALL_ROWS;
    uint expert = args.routes.v[slot], begin = args.routes.v[slot + 1u], number = args.routes.v[slot + 2u];
    if (number == 0u) return;
    uint pair = args.routes.v[args.slot_bytes / 4u + begin + min(lane, number - 1u)];
    uint input_row = uint(uint64_t(2u * pair) * args.reciprocal >> 32);
    uint64_t x = uint64_t(args.x) + uint64_t(input_row) * args.x_bytes;
    F32RW y = F32RW(uint64_t(args.y) + uint64_t(pair) * (4u * args.n));
    uint row = first;
    do {
        float sums[ROWS];
        multiply_rows(uint64_t(expert) * args.n + row, args.n - row, x, sums);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            if (lane >= number || row + r >= args.n) continue;
            float sum = sums[r];
            if (present(args.scale)) sum = sum * args.scale.v[expert];
            if (present(args.bias)) sum = sum + args.bias.v[expert * args.n + row + r];
            y.v[row + r] = sum;
        }
        row += ROWS;
    } while (row < first + ALL_ROWS && row < args.n);
}
