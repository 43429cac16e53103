// canonical-1's arithmetic: float +, - and * by themselves, everything else on integers. docs/spirv.md says what a
// driver may do to each operation and why none of it can change a bit of these.
//
// No `precise` anywhere: the build decorates every float operation NoContraction. No literal 0 or 1 as operand of
// + - *: drivers fold those. No a / b, sqrt, exp, max, min, isnan, fma of GLSL: the functions below.
#ifndef CANONICAL_GLSL
#define CANONICAL_GLSL

const uint NAN_BITS = 0x7fc00000u, INFINITY_BITS = 0x7f800000u, SIGN_BIT = 0x80000000u;

float f32(uint bits) { return uintBitsToFloat(bits); }
uint bits_of(float x) { return floatBitsToUint(x); }

bool is_nan(float x) { return (bits_of(x) & ~SIGN_BIT) > INFINITY_BITS; }

// A sum starts at +0 and so is never -0. A compiler that drops the start makes one of products that are all -0:
// every dot, and every other sum that started at 0, passes through here once, at its end.
float no_minus_zero(float sum) { return f32(bits_of(sum) == SIGN_BIT ? 0u : bits_of(sum)); }
vec4 no_minus_zero(vec4 sum) {
    return vec4(no_minus_zero(sum.x), no_minus_zero(sum.y), no_minus_zero(sum.z), no_minus_zero(sum.w));
}

// Integers in the floats' order, -0 below +0; of NaN nothing that is of use.
int order_key(float x) {
    int i = floatBitsToInt(x);
    return i ^ int(uint(i >> 31) >> 1);
}

// numpy.maximum and minimum: NaN wins.
float fmax_(float a, float b) { return is_nan(a) ? a : is_nan(b) ? b : order_key(a) >= order_key(b) ? a : b; }
float fmin_(float a, float b) { return is_nan(a) ? a : is_nan(b) ? b : order_key(a) <= order_key(b) ? a : b; }

// The float of an f16's bits: exact, denormals too.
float half_to_float(uint h) {
    uint magnitude = h & 0x7fffu;
    uint bits = magnitude < 0x0400u
        ? bits_of(float(magnitude) * f32(0x33800000u))  // * 2^-24: exact, normal or 0
        : (magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u);
    return f32(bits | (h & 0x8000u) << 16);
}

// Of |x|, x finite and not 0: |x| = m * 2^(e - 150), m in [2^23, 2^24).
void unpack_(uint bits, out uint m, out int e) {
    bits &= ~SIGN_BIT;
    e = int(bits >> 23);
    m = bits & 0x7fffffu;
    if (e == 0) {
        int shift = 23 - findMSB(m);
        m <<= shift;
        e = 1 - shift;
    } else {
        m |= 0x800000u;
    }
}

// The bits of (q + less than one unit where sticky) * 2^(e - 151), q in [2^24, 2^25), to nearest even.
uint pack_(uint q, bool sticky, int e) {
    if (e >= 255) return INFINITY_BITS;
    bool tiny = e < 1;
    if (tiny) {
        int shift = min(1 - e, 26);
        sticky = sticky || (q & ((1u << shift) - 1u)) != 0u;
        q >>= shift;
    }
    uint rounded = (q >> 1) + uint((q & 1u) != 0u && (sticky || (q & 2u) != 0u));
    return tiny ? rounded : (uint(e - 1) << 23) + rounded;  // a carry goes on into the exponent, up to infinity
}

// a / b, correctly rounded. The only native division is a seed: Vulkan promises 2.5 ULP of one, and 8 are searched.
float fdiv_(float a, float b) {
    uint ua = bits_of(a), ub = bits_of(b), sign = (ua ^ ub) & SIGN_BIT;
    ua &= ~SIGN_BIT;
    ub &= ~SIGN_BIT;
    bool both = (ua == INFINITY_BITS && ub == INFINITY_BITS) || (ua | ub) == 0u;
    if (ua > INFINITY_BITS || ub > INFINITY_BITS || both) return f32(NAN_BITS);
    if (ua == INFINITY_BITS || ub == 0u) return f32(sign | INFINITY_BITS);
    if (ub == INFINITY_BITS || ua == 0u) return f32(sign);
    uint ma, mb;
    int ea, eb;
    unpack_(ua, ma, ea);
    unpack_(ub, mb, eb);
    int e = ea - eb + 127;
    if (ma < mb) {
        ma <<= 1;
        e -= 1;
    }
    float seed = float(ma) / float(mb);                                      // in [1, 2)
    uint q = clamp(uint(seed * 16777216.0), 16777216u, 33554430u) - 8u;      // * 2^24
    uint r = (ma << 24) - q * mb;  // exact modulo 2^32: the true value is below 17 mb
    [[unroll]] for (uint d = 16u; d > 0u; d >>= 1) {
        if (r >= d * mb) {
            r -= d * mb;
            q += d;
        }
    }
    return f32(sign | pack_(q, r != 0u, e));
}

// The square root, correctly rounded; the native one is a seed, as in fdiv_.
float fsqrt_(float x) {
    uint bits = bits_of(x);
    if ((bits & ~SIGN_BIT) == 0u || bits == INFINITY_BITS) return x;
    if (bits > INFINITY_BITS) return f32(NAN_BITS);
    uint m;
    int e;
    unpack_(bits, m, e);
    e -= 127;  // x = m * 2^(e - 23)
    uint odd = uint(e) & 1u;
    float seed = sqrt(float(m << odd) * f32(0x34000000u));                   // of [1, 4)
    uint q = clamp(uint(seed * 16777216.0), 16777216u, 33554430u) - 16u;     // root of m * 2^(25 + odd)
    uint r = (m << (25u + odd)) - q * q;  // exact modulo 2^32: below (2 q + 32) * 32
    [[unroll]] for (uint d = 16u; d > 0u; d >>= 1) {
        uint step = (2u * q + d) * d;
        if (r >= step) {
            r -= step;
            q += d;
        }
    }
    return f32(pack_(q, r != 0u, (e >> 1) + 127));
}
float frsqrt_(float x) { return fdiv_(1.0, fsqrt_(x)); }

// To the nearest integer, ties to even; abs x < 2^22.
float frint_(float x) {
    float shifted = x + 12582912.0;
    return shifted - 12582912.0;
}

float fexp_(float x0) {
    float x = fmin_(fmax_(x0, -87.0), 87.0);
    float n = frint_(x * f32(0x3fb8aa3bu));                                  // LOG2E
    float r = (x - n * f32(0x3f317200u)) - n * f32(0x35bfbe8eu);             // LN2_HIGH, LN2_LOW
    float p = f32(0x394efe04u);                                              // EXP_P5
    p = p * r + f32(0x3ab6a665u);
    p = p * r + f32(0x3c088987u);
    p = p * r + f32(0x3d2aaa74u);
    p = p * r + f32(0x3e2aaaaau);
    p = p * r + 0.5;
    float y = ((r * r) * p + r) + 1.0;
    return is_nan(x0) ? x0 : f32(bits_of(y) + (uint(int(n)) << 23));  // y is in [0.70, 1.42]: exponents add
}

float flog_(float x) {
    uint bits = bits_of(x);
    if ((bits & ~SIGN_BIT) == 0u) return f32(SIGN_BIT | INFINITY_BITS);
    if (bits > INFINITY_BITS) return f32(NAN_BITS);
    if (bits == INFINITY_BITS) return x;
    uint mantissa;
    int e;
    unpack_(bits, mantissa, e);
    float m = f32(mantissa - 0x800000u + 0x3f000000u);                       // in [1/2, 1)
    e -= 126;
    if (m < f32(0x3f3504f3u)) {                                              // SQRT_HALF
        m = m + m;
        e -= 1;
    }
    float n = float(e), f = m - 1.0, f2 = f * f;
    float p = f32(0x3d8a3f1eu);                                              // LOG_P8
    p = p * f + f32(0xbdef0b76u);
    p = p * f + f32(0x3df36344u);
    p = p * f + f32(0xbdfe1333u);
    p = p * f + f32(0x3e119d93u);
    p = p * f + f32(0xbe2aae26u);
    p = p * f + f32(0x3e4cd23du);
    p = p * f + f32(0xbe800003u);
    p = p * f + f32(0x3eaaaaa4u);
    float y = ((f * f2) * p + n * f32(0x35bfbe8eu)) - 0.5 * f2;              // LN2_LOW
    return (f + y) + n * f32(0x3f317200u);                                   // LN2_HIGH
}

// The activations: kernels/reference/arithmetic/activations.py, line by line.
float fsigmoid_(float x) { return fdiv_(1.0, 1.0 + fexp_(-x)); }
float fsilu_(float x) { return x * fsigmoid_(x); }
float ftanh_(float x) { return 2.0 * fsigmoid_(2.0 * x) - 1.0; }
float fgelu_(float x) {
    float u = (f32(0x3f4c422au) * x) * (1.0 + f32(0x3d372713u) * (x * x));   // SQRT_2_OVER_PI, GELU_CUBIC
    return x * fsigmoid_(2.0 * u);
}
float fsoftplus_(float x) { return x > 20.0 ? x : flog_(1.0 + fexp_(x)); }

#endif
