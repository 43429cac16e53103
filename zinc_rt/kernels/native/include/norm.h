// RMS_NORM and LAYER_NORM of one row.
// RMS_NORM: (x * r) * w with r = 1 / sqrt(dot(x, x) / n + eps).
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

// canonical-1's dot of k floats with ones.
INLINE float sum_row(const float *a, uint32_t k) {
    f32x16 acc[8];
    for (int j = 0; j < 8; j++) acc[j] = (f32x16){0};
    uint32_t i = 0;
    for (; i + 128 <= k; i += 128)
        for (int j = 0; j < 8; j++) acc[j] = acc[j] + load16(a + i + 16 * j);
    for (int j = 0; i < k; i += 16, j++) acc[j] = acc[j] + (k - i < 16 ? load_some(a + i, k - i) : load16(a + i));
    return tree128(acc);
}

INLINE f32x16 scale_and_shift(f32x16 v, f32x16 r, f32x16 weight, f32x16 bias, int biased) {
    v = v * r * weight;
    return biased ? v + bias : v;
}

// LAYER_NORM: ((x - mean) * r) * w + b with r = 1 / sqrt(dot(x - mean, x - mean) / n + eps). y may be x. bias: n of
// them, or none.
INLINE void layer_norm(const float *x, const float *weight, const float *bias, float *y, uint32_t n, float eps) {
    f32x16 mean = splat_exact(sum_row(x, n) / (float)n);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) store16(y + i, load16(x + i) - mean);
    if (i < n) store_some(y + i, load_some(x + i, n - i) - mean, n - i);
    f32x16 r = splat_exact(rsqrt1(dot(y, y, n) / (float)n + eps)), none = {0};
    for (i = 0; i + 16 <= n; i += 16)
        store16(y + i, scale_and_shift(load16(y + i), r, load16(weight + i), bias ? load16(bias + i) : none, bias != 0));
    if (i < n) {
        f32x16 b = bias ? load_some(bias + i, n - i) : none;
        store_some(y + i, scale_and_shift(load_some(y + i, n - i), r, load_some(weight + i, n - i), b, bias != 0), n - i);
    }
}
