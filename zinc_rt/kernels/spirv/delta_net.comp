#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// SSM_DELTA_NET in every form, token by token: S = S * decay; delta = rate * (v - S k); S = S + k * delta;
// y = (S q) * shrink. conv_out f32[T][columns]; unit f32[T][2 * k_heads][width], q then k; gates f32[T][v_heads][2];
// states f32[rows][v_heads][width][width]; source and target, or 0: the rows that sequences read and write;
// y f32[T][v_heads * width]; counts of the step; width a multiple of 4, at most 128; grouped: v heads of a k head, 0
// where tiled.
// Grid: width / 32 rounded up, v_heads, sequences. An invocation keeps one value's row of S in registers, so that the
// dots over the key dimension are its own. It has the row before it stores: the row that it reads may be the one that
// it writes.
KERNARG(F32 conv_out; F32 unit; F32 gates; F32RW state; F32RW new_state; U32 sequence; U32 source; U32 target; F32RW y;
        U32 counts; uint width; uint columns; uint k_heads; uint v_heads; uint grouped; float shrink;)

const uint QUADS = 8u;  // of four vectors, in a row of 128

F32x4RW row_of_state(uint64_t states, uint row, uint head, uint value) {
    uint matrix = row * args.v_heads + head;
    return row_of(F32x4RW, row_of(F32RW, states, matrix, args.width * args.width), value, args.width);
}

float sum_of_four(vec4 a) { return (a.x + a.y) + (a.z + a.w); }

// Vector i of S decays; its products with k.
float decay(inout vec4 s, uint i, float by, F32x4 k) {
    if (i >= args.width >> 2) return 0.0;
    s = s * by;
    return sum_of_four(s * k.v[i]);
}

// Vector i of S learns delta; its products with q.
float learn(inout vec4 s, uint i, float delta, F32x4 k, F32x4 q) {
    if (i >= args.width >> 2) return 0.0;
    s = s + k.v[i] * delta;
    return sum_of_four(s * q.v[i]);
}

float sum_of_quads(float a[QUADS]) {
    return no_minus_zero(((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])));
}

void main() {
    uint value = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, s = gl_WorkGroupID.z, width = args.width;
    if (value >= width) return;
    uint k_head = args.grouped == 0u ? head % args.k_heads : head / args.grouped;
    F32x4RW row = row_of_state(uint64_t(args.state), state_row(args.source, s), head, value);
    vec4 state[QUADS][4];
    [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            state[quad][i] = 4u * quad + i < width >> 2 ? row.v[4u * quad + i] : vec4(0);
        }
    }
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], end = first_token(numbers, s + 1u, tokens);
    for (uint token = first_token(numbers, s, tokens); token < end; token++) {
        F32x4 q = row_of(F32x4, args.unit, 2u * token * args.k_heads + k_head, width);
        F32x4 k = row_of(F32x4, args.unit, (2u * token + 1u) * args.k_heads + k_head, width);
        uint gate = 2u * (token * args.v_heads + head);
        float by = args.gates.v[gate], rate = args.gates.v[gate + 1u];
        float v = row_of(F32, args.conv_out, token, args.columns).v[(2u * args.k_heads + head) * width + value];
        float sums[QUADS];
        [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
            uint i = 4u * quad;
            sums[quad] = (decay(state[quad][0], i, by, k) + decay(state[quad][1], i + 1u, by, k))
                + (decay(state[quad][2], i + 2u, by, k) + decay(state[quad][3], i + 3u, by, k));
        }
        float delta = rate * (v - sum_of_quads(sums));
        [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
            uint i = 4u * quad;
            sums[quad] = (learn(state[quad][0], i, delta, k, q) + learn(state[quad][1], i + 1u, delta, k, q))
                + (learn(state[quad][2], i + 2u, delta, k, q) + learn(state[quad][3], i + 3u, delta, k, q));
        }
        row_of(F32RW, args.y, token, args.v_heads * width).v[head * width + value] = sum_of_quads(sums) * args.shrink;
    }
    row = row_of_state(uint64_t(args.new_state), state_row(args.target, s), head, value);
    [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            if (4u * quad + i < width >> 2) row.v[4u * quad + i] = state[quad][i];
        }
    }
}
