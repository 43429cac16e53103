// canonical-1's exp, log and 1 / sqrt, 16 lanes at a time: the sections of docs/canonical-1.md of these names.
#pragma once
#include "vec.h"

// Lanes of a where the mask is all ones, of b where it is zero.
INLINE f32x16 choose(i32x16 mask, f32x16 a, f32x16 b) {
    return (f32x16)((mask & (i32x16)a) | (~mask & (i32x16)b));
}

// exp of x clamped to [-87, 87]; NaN stays NaN.
//
// rndne by adding 1.5 * 2^23: floats there are integers, the addition rounds to nearest even, and the low bits of
// the sum are n's. |x * log2 e| < 2^7, so nothing is lost. n = +0 where rndne gives -0, which changes no result:
// n is only subtracted from x, and exp(-0) is exp(+0).
INLINE f32x16 exp16(f32x16 x) {
    const f32x16 low = splat(-87.0f), high = splat(87.0f), magic = splat(0x1.8p23f);
    f32x16 c = choose(x < low, low, x);
    c = choose(c > high, high, c);
    f32x16 shifted = c * splat(0x1.715476p+0f) + magic;
    f32x16 n = shifted - magic;
    f32x16 r = (c - n * splat(0x1.62e4p-1f)) - n * splat(0x1.7f7d1cp-20f);
    f32x16 p = splat(0x1.9dfc08p-13f);
    p = p * r + splat(0x1.6d4ccap-10f);
    p = p * r + splat(0x1.11130ep-7f);
    p = p * r + splat(0x1.5554e8p-5f);
    p = p * r + splat(0x1.555554p-3f);
    p = p * r + splat(0x1p-1f);
    f32x16 y = (((r * r) * p) + r) + splat(1.0f);
    f32x16 scaled = (f32x16)((u32x16)y + ((u32x16)shifted << 23));
    return choose(x == x, scaled, x);
}

INLINE f32x16 log16(f32x16 x) {
    const f32x16 one = splat(1.0f);
    // Denormals: made normal by 2^23, exactly.
    i32x16 tiny = x < splat(0x1p-126f);
    f32x16 normal = choose(tiny, x * splat(0x1p23f), x);
    u32x16 bits = (u32x16)normal;
    f32x16 m = (f32x16)((bits & 0x007fffffu) | 0x3f000000u);
    i32x16 e = (i32x16)(bits >> 23 & 0xffu) - 126 - (tiny & 23);
    i32x16 low = m < splat(0x1.6a09e6p-1f);
    m = choose(low, m + m, m);
    f32x16 n = __builtin_convertvector(e + low, f32x16);  // low is -1 where true
    f32x16 f = m - one;
    f32x16 f2 = f * f;
    f32x16 p = splat(0x1.147e3cp-4f);
    p = p * f + splat(-0x1.de16ecp-4f);
    p = p * f + splat(0x1.e6c688p-4f);
    p = p * f + splat(-0x1.fc2666p-4f);
    p = p * f + splat(0x1.233b26p-3f);
    p = p * f + splat(-0x1.555c4cp-3f);
    p = p * f + splat(0x1.99a47ap-3f);
    p = p * f + splat(-0x1.000006p-2f);
    p = p * f + splat(0x1.555548p-2f);
    f32x16 y = ((f * f2) * p + n * splat(0x1.7f7d1cp-20f)) - splat(0.5f) * f2;
    f32x16 value = (f + y) + n * splat(0x1.62e4p-1f);
    const f32x16 infinity = splat(__builtin_inff());
    value = choose(x == infinity, x, value);
    value = choose(x == splat(0.0f), -infinity, value);
    return choose(x >= splat(0.0f), value, splat(__builtin_nanf("")));
}

INLINE float exp1(float x) { return exp16(splat_exact(x))[0]; }

INLINE float rsqrt1(float x) { return 1.0f / __builtin_sqrtf(x); }
