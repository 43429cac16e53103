#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "sequence.glsl"

// As conv1d, of any width: weight f32[channels][taps], states f32[rows][taps - 1][channels]. Inputs stay where they are,
// in the state that is read and in x, as one line of each sequence and channel.
KERNARG(F32 x; F32 weight; F32RW state; F32RW new_state; U32 sequence; U32 source; U32 target; F32 bias; F32RW y;
        U32 counts; uint channels; uint silu; uint taps;)

void main() {
    uint channel = gl_GlobalInvocationID.x, s = gl_WorkGroupID.y, channels = args.channels, before = args.taps - 1u;
    if (channel >= channels) return;
    F32RW state = row_of(F32RW, args.state, state_row(args.source, s), before * channels);
    F32 taps = row_of(F32, args.weight, channel, args.taps);
    U32 numbers = args.sequence;
    uint tokens = args.counts.v[0], first = first_token(numbers, s, tokens), end = first_token(numbers, s + 1u, tokens);
    for (uint token = first; token < end; token++) {
        float sum = 0.0;
        for (uint tap = 0u; tap < args.taps; tap++) {
            uint at = token - first + tap;  // in the line, where x begins at `before`
            float u = at < before ? state.v[at * channels + channel] : args.x.v[(first + at - before) * channels + channel];
            sum = sum + u * taps.v[tap];
        }
        sum = no_minus_zero(sum);
        if (present(args.bias)) sum = sum + args.bias.v[channel];
        args.y.v[token * channels + channel] = args.silu != 0u ? fsilu_(sum) : sum;
    }
    F32RW made = row_of(F32RW, args.new_state, state_row(args.target, s), before * channels);
    for (uint i = 0u; i < before; i++) {  // rising: the row that is read may be the one that is written
        uint at = end - first + i;
        made.v[i * channels + channel] =
            at < before ? state.v[at * channels + channel] : args.x.v[(first + at - before) * channels + channel];
    }
}
