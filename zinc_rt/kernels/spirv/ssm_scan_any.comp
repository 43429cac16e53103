#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// As ssm_scan, of any number of states: they stay in memory, in the row that is written. Grid: channels, sequences. Four
// neighbouring states of 128 are an invocation's.
KERNARG(F32 u; F32 dt; F32 b; F32 c; F32 a; F32 d; F32RW state; F32RW new_state; U32 sequence; F32RW y; U32 counts;
        uint channels; uint states;)

void main() {
    uint channel = gl_WorkGroupID.x, s = gl_WorkGroupID.y, states = args.states;
    F32RW from = row_of(F32RW, args.state, s * args.channels + channel, states);
    F32RW made = row_of(F32RW, args.new_state, s * args.channels + channel, states);
    F32 rates = row_of(F32, args.a, channel, states);
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], first = first_token(numbers, s, tokens), end = first_token(numbers, s + 1u, tokens);
    for (uint token = first; token < end; token++) {
        F32 b = row_of(F32, args.b, token, states), c = row_of(F32, args.c, token, states);
        uint at = token * args.channels + channel;
        float u = args.u.v[at], dt = fsoftplus_(args.dt.v[at]), change = dt * u;
        vec4 products = vec4(0);
        for (uint n = 4u * lane; n < states; n += 128u) {
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                if (n + i < states) {
                    float state = from.v[n + i] * fexp_(dt * rates.v[n + i]) + change * b.v[n + i];
                    made.v[n + i] = state;
                    products[i] += state * c.v[n + i];
                }
            }
        }
        put_sum(0u, products);
        barrier();
        if (lane == 0u) args.y.v[at] = sum_of(0u) + args.d.v[channel] * u;
        barrier();
        from = made;  // an invocation reads what it stored itself
    }
    if (first == end) {
        for (uint n = lane; n < states; n += LANES) made.v[n] = from.v[n];
    }
}
