#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// SSM_SCAN, token by token: dt = softplus(dt); S = S * exp(dt * a) + (dt * u) * b; y = dot(S, c) + d * u. u, dt and y
// f32[T][channels]; b and c f32[T][states]; a f32[channels][states]; d f32[channels]; states f32[rows][channels][states],
// the rows in the order of the sequences; counts of the step; states at most 16.
// Grid: channels / 32 rounded up, sequences. An invocation is a channel, with its state in registers.
KERNARG(F32 u; F32 dt; F32 b; F32 c; F32 a; F32 d; F32 state; F32RW new_state; U32 sequence; F32RW y; U32 counts;
        uint channels; uint states;)

const uint STATES = 16u;

float sum_of_products(float p[STATES]) {
    return no_minus_zero((((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])))
        + (((p[8] + p[9]) + (p[10] + p[11])) + ((p[12] + p[13]) + (p[14] + p[15]))));
}

void main() {
    uint channel = gl_GlobalInvocationID.x, s = gl_WorkGroupID.y, states = args.states;
    if (channel >= args.channels) return;
    F32 old = row_of(F32, args.state, s * args.channels + channel, states);
    F32 rates = row_of(F32, args.a, channel, states);
    float state[STATES], rate[STATES];
    [[unroll]] for (uint n = 0u; n < STATES; n++) {
        state[n] = n < states ? old.v[n] : 0.0;
        rate[n] = n < states ? rates.v[n] : 0.0;
    }
    float skip = args.d.v[channel];
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], end = first_token(numbers, s + 1u, tokens);
    for (uint token = first_token(numbers, s, tokens); token < end; token++) {
        F32 b = row_of(F32, args.b, token, states), c = row_of(F32, args.c, token, states);
        uint at = token * args.channels + channel;
        float u = args.u.v[at], dt = fsoftplus_(args.dt.v[at]), change = dt * u;
        float products[STATES];
        [[unroll]] for (uint n = 0u; n < STATES; n++) {
            products[n] = 0.0;
            if (n < states) {
                state[n] = state[n] * fexp_(dt * rate[n]) + change * b.v[n];
                products[n] = state[n] * c.v[n];
            }
        }
        args.y.v[at] = sum_of_products(products) + skip * u;
    }
    F32RW made = row_of(F32RW, args.new_state, s * args.channels + channel, states);
    [[unroll]] for (uint n = 0u; n < STATES; n++) {
        if (n < states) made.v[n] = state[n];
    }
}
