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

INLINE f32x16 softplus16(f32x16 x) {
    return choose(x > splat(20.0f), x, log16(splat(1.0f) + exp16(x)));
}
