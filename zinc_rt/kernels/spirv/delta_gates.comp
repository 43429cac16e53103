#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// SSM_DELTA_NET, the scalars of each token and v head: decay = exp(a * softplus(alpha + dt_bias)), rate =
// sigmoid(beta), side by side in gates f32[T][heads][2]. Grid: heads / 32 rounded up, tokens.
KERNARG(F32 beta; F32 alpha; F32 dt_bias; F32 a; F32RW gates; uint heads;)

void main() {
    uint head = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * args.heads + head;
    if (head >= args.heads) return;
    args.gates.v[2u * at] = fexp_(args.a.v[head] * fsoftplus_(args.alpha.v[at] + args.dt_bias.v[head]));
    args.gates.v[2u * at + 1u] = fsigmoid_(args.beta.v[at]);
}
