#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// As delta_net, of any width: S stays in memory, in the row that is written. Grid: width, v_heads, sequences: a workgroup
// is one value's row of S, of which four neighbouring elements of 128 are an invocation's.
KERNARG(F32 conv_out; F32 unit; F32 gates; F32RW state; F32RW new_state; U32 sequence; U32 source; U32 target; F32RW y;
        U32 counts; uint width; uint columns; uint k_heads; uint v_heads; uint grouped; float shrink;)

F32RW row_of_state(uint64_t states, uint row, uint head, uint value) {
    uint matrix = row * args.v_heads + head;
    return row_of(F32RW, row_of(F32RW, states, matrix, args.width * args.width), value, args.width);
}

// For every invocation.
float sum_of_workgroup(vec4 mine) {
    put_sum(0u, mine);
    barrier();
    float sum = sum_of(0u);
    barrier();
    return sum;
}

void main() {
    uint value = gl_WorkGroupID.x, head = gl_WorkGroupID.y, s = gl_WorkGroupID.z, width = args.width;
    uint k_head = args.grouped == 0u ? head % args.k_heads : head / args.grouped;
    F32RW from = row_of_state(uint64_t(args.state), state_row(args.source, s), head, value);
    F32RW made = row_of_state(uint64_t(args.new_state), state_row(args.target, s), head, value);
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], first = first_token(numbers, s, tokens), end = first_token(numbers, s + 1u, tokens);
    for (uint token = first; token < end; token++) {
        F32 q = row_of(F32, args.unit, 2u * token * args.k_heads + k_head, width);
        F32 k = row_of(F32, args.unit, (2u * token + 1u) * args.k_heads + k_head, width);
        uint gate = 2u * (token * args.v_heads + head);
        float decay = args.gates.v[gate], rate = args.gates.v[gate + 1u];
        float v = row_of(F32, args.conv_out, token, args.columns).v[(2u * args.k_heads + head) * width + value];
        vec4 products = vec4(0);
        for (uint n = 4u * lane; n < width; n += 128u) {
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                if (n + i < width) {
                    float state = from.v[n + i] * decay;
                    made.v[n + i] = state;
                    products[i] += state * k.v[n + i];
                }
            }
        }
        float delta = rate * (v - sum_of_workgroup(products));
        products = vec4(0);
        for (uint n = 4u * lane; n < width; n += 128u) {
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                if (n + i < width) {
                    float state = made.v[n + i] + k.v[n + i] * delta;
                    made.v[n + i] = state;
                    products[i] += state * q.v[n + i];
                }
            }
        }
        float y = sum_of_workgroup(products) * args.shrink;
        if (lane == 0u) row_of(F32RW, args.y, token, args.v_heads * width).v[head * width + value] = y;
        from = made;  // an invocation reads what it stored itself
    }
    if (first == end) {
        for (uint n = lane; n < width; n += LANES) made.v[n] = from.v[n];
    }
}
