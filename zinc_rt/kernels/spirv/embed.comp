#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// EMBED: y[token] = the table's row token_id[token] as float32; without token_id, the row `token`.
//
// grid: x parts of a row (1,024 elements of packed types, 512 of others), y tokens
// buffers: token_id i32 [T] or 0, table packed as rows/repack.py says, y f32 [T][k]
// constants: k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2
KERNARG(
    U32 token_id; U32 w; F32RW y;
    uint k;
    uint row_bytes; uint scales_offset; uint scales_row_bytes; uint high_offset; uint high_row_bytes;
)

#include "weights.glsl"

void store(uint64_t y, uint step, vec4 values) {
    uint first = step * STEP + 4u * lane;
    [[unroll]] for (uint e = 0u; e < 4u; e++) if (first + e < args.k) F32RW(y).v[first + e] = values[e];
}

void main() {
    uint token = gl_WorkGroupID.y, block = gl_WorkGroupID.x;
    Row row = row_at(uint64_t(present(args.token_id) ? args.token_id.v[token] : token));
    uint64_t y = uint64_t(args.y) + uint64_t(token) * (4u * args.k);
    if (block < whole_blocks(args.k)) {
        Block weights = load_block(row, block);
        [[unroll]] for (uint i = 0u; i < STEPS; i++) store(y, block * STEPS + i, block_weights(weights, i));
    } else {
        for (uint step = block * STEPS; step < (block + 1u) * STEPS && step * STEP < args.k; step++)
            store(y, step, step_weights(row, step));
    }
}
