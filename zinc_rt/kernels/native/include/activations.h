// canonical-1's activations over 16 lanes: docs/canonical-1.md, Activations.
#pragma once
#include "exp_log.h"

INLINE f32x16 sigmoid16(f32x16 x) { return splat(1.0f) / (splat(1.0f) + exp16(-x)); }
INLINE f32x16 silu16(f32x16 x) { return x * sigmoid16(x); }
INLINE f32x16 tanh16(f32x16 x) { return splat(2.0f) * sigmoid16(splat(2.0f) * x) - splat(1.0f); }

INLINE f32x16 gelu16(f32x16 x) {
    f32x16 u = (splat(0x1.988454p-1f) * x) * (splat(1.0f) + splat(0x1.6e4e26p-5f) * (x * x));
    return x * sigmoid16(splat(2.0f) * u);
}

// gpt-oss's: a NaN stays one.
INLINE f32x16 swiglu_clamped16(f32x16 gate, f32x16 up) {
    const f32x16 limit = splat(7.0f);
    gate = choose(gate > limit, limit, gate);
    up = choose(up > limit, limit, choose(up < -limit, -limit, up));
    return gate * sigmoid16(gate * splat(1.702f)) * (up + splat(1.0f));
}

INLINE f32x16 softplus16(f32x16 x) {
    return choose(x > splat(20.0f), x, log16(splat(1.0f) + exp16(x)));
}
