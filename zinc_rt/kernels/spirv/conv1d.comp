#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// SSM_CONV1D in every form: causal depthwise convolution of width 4 over the tokens of each sequence, from the oldest
// tap; silu where asked. x, y f32[T][channels]; weight f32[channels][4]; states f32[rows][3][channels]; source and
// target, or 0: the rows that sequences read and write; bias or 0; counts of the step.
// Grid: channels / 128 rounded up, sequences. An invocation is a channel, with the last three inputs in registers. It
// has them before it stores: the row that it reads may be the one that it writes.
KERNARG(F32 x; F32x4 weight; F32RW state; F32RW new_state; U32 sequence; U32 source; U32 target; F32 bias; F32RW y;
        U32 counts; uint channels; uint silu;)

void main() {
    uint channel = gl_GlobalInvocationID.x, s = gl_WorkGroupID.y, channels = args.channels;
    if (channel >= channels) return;
    F32RW state = row_of(F32RW, args.state, state_row(args.source, s), 3u * channels);
    float before3 = state.v[channel], before2 = state.v[channels + channel], before1 = state.v[2u * channels + channel];
    vec4 taps = args.weight.v[channel];
    bool biased = present(args.bias);
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], end = first_token(numbers, s + 1u, tokens);
    for (uint token = first_token(numbers, s, tokens); token < end; token++) {
        uint at = token * channels + channel;
        float x = args.x.v[at];
        float y = before3 * taps.x;
        y = y + before2 * taps.y;
        y = y + before1 * taps.z;
        y = no_minus_zero(y + x * taps.w);
        if (biased) y = y + args.bias.v[channel];
        args.y.v[at] = args.silu != 0u ? fsilu_(y) : y;
        before3 = before2;
        before2 = before1;
        before1 = x;
    }
    state = row_of(F32RW, args.new_state, state_row(args.target, s), 3u * channels);
    state.v[channel] = before3;
    state.v[channels + channel] = before2;
    state.v[2u * channels + channel] = before1;
}
