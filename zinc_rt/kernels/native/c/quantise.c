// Activations in 8 bits, as docs/canonical-1.md says under canonical-1-q8. projection.h has the records.
#include "projection.h"

typedef struct {
    const float *x;
    uint8_t *records;
    const int32_t *row;     // 0, or the input of each token
    const int32_t *counts;  // the step's
    uint32_t k, record_bytes;
    uint32_t x_stride, x_head_stride;  // in floats
    uint32_t inputs;                   // that `row` may name: a number, or IS_COUNT | an index of counts
} quantisation;

#define SEGMENT 1024  // elements to an item

typedef struct {
    float factor, d;  // q = rndne(x * factor); both 0, or d NaN, where q is 0
} step;

// float32(float16(v)) of v >= 0, to nearest, ties to even: in float16's denormals by the spacing of [0.5, 1), which
// is theirs, otherwise by rounding 13 bits away.
INLINE float through_half(float v) {
    if (v >= 65520.0f) return __builtin_inff();
    if (v < 0x1p-14f) return (v + 0.5f) - 0.5f;
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

INLINE f32x16 absolute(f32x16 v) { return (f32x16)((u32x16)v & 0x7fffffffu); }

// amax is found among the bits: of non-negative floats they are ordered as their values, NaN above infinity.
static inline step step_of(const float *x, uint32_t n, int half) {
    u32x16 most = {0};
    for (uint32_t i = 0; i < n; i += 16) {
        u32x16 v = (u32x16)absolute(load16(x + i));
        most = __builtin_elementwise_max(most, v);
    }
    uint32_t bits = __builtin_reduce_max(most);
    float amax;
    memcpy(&amax, &bits, 4);
    if (bits >= 0x7f800000u) return (step){0, __builtin_nanf("")};
    if (amax < 0x1p-100f) return (step){0, 0};
    float d = amax / 127.0f;
    return (step){127.0f / amax, half ? through_half(d) : d};
}

// The sum of the 16 quants.
INLINE int32_t quants16(const float *x, step s, int8_t *q) {
    if (s.factor == 0) {
        memset(q, 0, 16);
        return 0;
    }
    // To nearest, ties to even: |x * factor| <= 127.5, so adding and taking away 1.5 * 2^23 rounds to an integer.
    f32x16 v = load16(x) * splat_exact(s.factor);
    i32x16 i = __builtin_convertvector((v + splat_exact(0x1.8p23f)) - splat_exact(0x1.8p23f), i32x16);
    i8x16 bytes = __builtin_convertvector(i, i8x16);
    memcpy(q, &bytes, 16);
    return __builtin_reduce_add(i);
}

static void blocks32(const float *x, uint8_t *record, uint32_t k, uint32_t begin, uint32_t end) {
    act32 to = act32_at(record, k);
    for (uint32_t i = begin; i < end; i += 32) {
        step s = step_of(x + i, 32, 1);
        int32_t sum = quants16(x + i, s, (int8_t *)to.q + i) + quants16(x + i + 16, s, (int8_t *)to.q + i + 16);
        ((float *)to.d)[i / 32] = s.d;
        ((int32_t *)to.minus)[i / 32] = -128 * sum;
    }
}

static void blocks256(const float *x, uint8_t *record, uint32_t k, uint32_t begin, uint32_t end) {
    act256 to = act256_at(record, k);
    for (uint32_t i = begin; i < end; i += 256) {
        step s = step_of(x + i, 256, 0);
        ((float *)to.d)[i / 256] = s.d;
        for (uint32_t e = i; e < i + 256; e += 32) {
            int32_t a = quants16(x + e, s, (int8_t *)to.q + e), b = quants16(x + e + 16, s, (int8_t *)to.q + e + 16);
            ((int16_t *)to.halves)[e / 16] = (int16_t)a;
            ((int16_t *)to.halves)[e / 16 + 1] = (int16_t)b;
            ((int16_t *)to.sums)[e / 32] = (int16_t)(a + b);
        }
    }
}

// Grid (segments of a record, heads, tokens); records are [tokens][heads].
static int32_t quantise(const quantisation *p, const uint32_t grid[3], uint32_t first, uint32_t last,
                        void (*blocks)(const float *, uint8_t *, uint32_t, uint32_t, uint32_t)) {
    uint32_t inputs = counted(p->counts, p->inputs);
    for (uint32_t item = first; item < last; item++) {
        uint32_t number = item / grid[0], begin = item % grid[0] * SEGMENT;
        uint32_t token = number / grid[1], head = number % grid[1];
        uint32_t input = p->row ? (uint32_t)p->row[token] : token;
        if (p->row && input >= inputs) return BAD_ROW;
        const float *x = p->x + (size_t)input * p->x_stride + (size_t)head * p->x_head_stride;
        uint32_t end = begin + SEGMENT < p->k ? begin + SEGMENT : p->k;
        blocks(x, p->records + (size_t)number * p->record_bytes, p->k, begin, end);
    }
    return OK;
}

KERNEL(quantise32) { return quantise(arguments, grid, first, last, blocks32); }
KERNEL(quantise256) { return quantise(arguments, grid, first, last, blocks256); }
