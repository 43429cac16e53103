// RMS_NORM of one row: (x * r) * w with r = 1 / sqrt(dot(x, x) / n + eps).
#pragma once
#include "exp_log.h"

// y may be x. weight: n of them, or none.
INLINE void rms_norm(const float *x, const float *weight, float *y, uint32_t n, float eps) {
    f32x16 r = splat_exact(rsqrt1(dot(x, x, n) / (float)n + eps));
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        f32x16 v = load16(x + i) * r;
        store16(y + i, weight ? v * load16(weight + i) : v);
    }
    if (i < n) {
        f32x16 v = load_some(x + i, n - i) * r;
        store_some(y + i, weight ? v * load_some(weight + i, n - i) : v, n - i);
    }
}
