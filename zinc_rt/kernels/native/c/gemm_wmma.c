// wmma-f16 and wmma-bf16: projections with the sums of gfx12's V_WMMA_F32_16X16X16_F16 and _BF16. docs/wmma-f16.md defines
// every result.
//
// A half is a signed significand of 11 bits, of bf16 8, and an exponent; a product is the integer product of two significands
// on the grid of their exponents. The integers of a step are aligned, added and rounded to float32 once, for 16 rows at a
// time. This needs exponents whose sums neither overflow nor become denormal. A chunk of others, which only bf16 has and
// which are rare, or of infinity and NaN, is computed number by number.
#include "dequantise.h"
#include "projection.h"

#define CHUNK 256  // elements of k that are dequantised at a time: a multiple of every type's block
#define NONE -2048  // exponent of a zero: below every grid
#define SPECIAL 4096  // exponent of infinity (significand 1 or -1) and NaN (0)
#define LARGEST 14  // the exponent of a row's largest element after scaling
#define LEAST_X -72  // exponents that are computed 16 rows at a time
#define LEAST_W -30
#define MOST_W 60
#define FRACTION(bf16) ((bf16) ? 7 : 10)

// A token's row, from round_rows: one header, then for every element of the padded k a significand and an exponent.
typedef struct {
    float factor;       // results are multiplied by it
    uint32_t irregular;  // an element is infinite, NaN or below LEAST_X
    int32_t spare[2];
} row_header;
typedef struct {
    int32_t significand, exponent;
} half_parts;

INLINE uint32_t padded(uint32_t k) { return (k + 15) & ~15u; }

typedef struct {
    i32x16 significand, exponent;
} halves;

INLINE i32x16 max16(i32x16 a, i32x16 b) { return __builtin_elementwise_max(a, b); }
INLINE i32x16 min16(i32x16 a, i32x16 b) { return __builtin_elementwise_min(a, b); }
INLINE i32x16 select16(i32x16 mask, i32x16 a, i32x16 b) { return (a & mask) | (b & ~mask); }

// Sixteen floats rounded to half, to nearest even, in parts.
INLINE halves to_halves(f32x16 x) {
    u32x16 bits = (u32x16)x;
    i32x16 field = (i32x16)(bits >> 23 & 0xff);
    i32x16 exponent = max16(field - 127, (i32x16){0} - 14);
    f32x16 size = (f32x16)(bits & 0x7fffffff) * (f32x16)((10 + 127 - exponent) << 23);
    size = (size + 0x1p23f) - 0x1p23f;  // below 2^12: the nearest integer, ties to even
    size = __builtin_elementwise_min(size, splat(0x1p12f));  // infinity and NaN
    i32x16 significand = __builtin_convertvector(size, i32x16), carry = significand >> 11;
    significand = significand >> (carry & 1), exponent = exponent + carry;
    i32x16 nan = (i32x16)(bits & 0x7fffffff) > 0x7f800000, special = (exponent > 15) | nan;
    significand = select16(nan, (i32x16){0}, select16(special, (i32x16){0} + 1, significand));
    exponent = select16(special, (i32x16){0} + SPECIAL, select16(significand == 0, (i32x16){0} + NONE, exponent));
    i32x16 sign = (i32x16)bits >> 31;
    return (halves){(significand ^ sign) - sign, exponent};
}

// Sixteen floats rounded to bf16, likewise.
INLINE halves to_bf16(f32x16 x) {
    i32x16 bits = (i32x16)x, sign = bits >> 31, nan = (bits & 0x7fffffff) > 0x7f800000;
    i32x16 size = (bits & 0x7fffffff) + 0x7fff + (bits >> 16 & 1);
    i32x16 field = size >> 23 & 0xff, special = (field == 0xff) | nan;
    i32x16 significand = (size >> 16 & 0x7f) | ((field != 0) & 0x80);
    i32x16 exponent = max16(field, (i32x16){0} + 1) - 127;
    significand = select16(nan, (i32x16){0}, select16(special, (i32x16){0} + 1, significand));
    exponent = select16(special, (i32x16){0} + SPECIAL, select16(significand == 0, (i32x16){0} + NONE, exponent));
    return (halves){(significand ^ sign) - sign, exponent};
}

// Whether exponents are outside of a range, a mask. Zeros are not.
INLINE i32x16 outside(i32x16 exponent, int32_t least, int32_t most) {
    return ((exponent < least) & (exponent != NONE)) | (exponent > most);
}

INLINE float value_of(int32_t significand, int32_t exponent) {
    if (exponent == SPECIAL) return significand ? (float)significand * __builtin_inff() : __builtin_nanf("");
    return significand ? (float)significand : 0;  // of a finite number only the sign matters
}

typedef struct {
    const float *x;
    uint8_t *records;
    uint32_t k, record_bytes;
} rounding;

INLINE int32_t round_rows(const rounding *p, uint32_t first, uint32_t last, int bf16) {
    for (uint32_t token = first; token < last; token++) {
        const float *x = p->x + (size_t)token * p->k;
        row_header *to = (row_header *)(p->records + (size_t)token * p->record_bytes);
        half_parts *parts = (half_parts *)(to + 1);
        u32x16 most = {0};
        for (uint32_t i = 0; i < p->k; i += 16) {
            f32x16 v = p->k - i < 16 ? load_some(x + i, p->k - i) : load16(x + i);
            most = __builtin_elementwise_max(most, (u32x16)v & 0x7fffffff);
        }
        uint32_t field = 0;
        for (int lane = 0; lane < 16; lane++) field = most[lane] >> 23 > field ? most[lane] >> 23 : field;
        field = field < 27 ? 27 : field > 254 ? 254 : field;
        uint32_t scale_bits = (254 + LARGEST - field) << 23, factor_bits = (field - LARGEST) << 23;
        float scale;
        memcpy(&scale, &scale_bits, 4);
        memcpy(&to->factor, &factor_bits, 4);
        i32x16 irregular = {0};
        for (uint32_t i = 0; i < p->k; i += 16) {
            f32x16 v = p->k - i < 16 ? load_some(x + i, p->k - i) : load16(x + i);
            halves h = bf16 ? to_bf16(v * splat_exact(scale)) : to_halves(v * splat_exact(scale));
            irregular = irregular | outside(h.exponent, LEAST_X, LARGEST + 1);
            for (int lane = 0; lane < 16; lane++) parts[i + lane] = (half_parts){h.significand[lane], h.exponent[lane]};
        }
        to->irregular = 0;
        for (int lane = 0; lane < 16; lane++) to->irregular |= irregular[lane] != 0;
    }
    return OK;
}

// Grid (rows of a token, tokens).
KERNEL(round_rows_f16) { return round_rows(arguments, first, last, 0); }
KERNEL(round_rows_bf16) { return round_rows(arguments, first, last, 1); }

// A chunk of a panel: [element][row].
typedef struct {
    i32x16 significand[CHUNK], exponent[CHUNK];
    int irregular;
} panel;

INLINE void load_panel(panel *to, const job *j, uint32_t first, uint32_t rows, uint32_t begin, uint32_t count, int bf16) {
    float room[CHUNK];
    size_t offset = (size_t)begin / block_elements(j->type) * block_bytes(j->type);
    int32_t *significand = (int32_t *)to->significand, *exponent = (int32_t *)to->exponent;
    i32x16 irregular = {0};
    for (uint32_t row = 0; row < PANEL; row++) {
        if (row < rows) dequantise_run(j->type, j->w + (first + row) * j->row_bytes + offset, count, room);
        uint32_t have = row < rows ? count : 0;
        for (uint32_t i = have; i < padded(count); i++) room[i] = 0;
        for (uint32_t i = 0; i < count; i += 16) {
            halves h = bf16 ? to_bf16(load16(room + i)) : to_halves(load16(room + i));
            irregular = irregular | outside(h.exponent, LEAST_W, MOST_W);
            for (int lane = 0; lane < 16; lane++) {
                significand[(i + lane) * PANEL + row] = h.significand[lane] * (1 << (24 - 2 * FRACTION(bf16)));  // units of a product's grid
                exponent[(i + lane) * PANEL + row] = h.exponent[lane] - 24;
            }
        }
    }
    to->irregular = 0;
    for (int lane = 0; lane < 16; lane++) to->irregular |= irregular[lane] != 0;
}

INLINE i32x16 shift_floor(i32x16 value, i32x16 by) { return value >> min16(by, (i32x16){0} + 31); }

// sum + four products, rounded once. Exponents are regular, so that sums are multiples of 2^-126 and do not overflow.
INLINE f32x16 add_step(f32x16 sum, const half_parts *x, const i32x16 *significand, const i32x16 *exponent) {
    i32x16 grid[4], product[4], pair[2], own[2];
    for (int i = 0; i < 4; i++) product[i] = significand[i] * x[i].significand, grid[i] = exponent[i] + x[i].exponent;
    for (int i = 0; i < 2; i++) {
        own[i] = max16(grid[2 * i], grid[2 * i + 1]);
        pair[i] = shift_floor(product[2 * i], own[i] - grid[2 * i]) + shift_floor(product[2 * i + 1], own[i] - grid[2 * i + 1]);
    }
    i32x16 leading = (i32x16)((u32x16)sum >> 23 & 0xff) - (127 + 26);
    i32x16 unit = max16(max16(max16(own[0], own[1]), leading), (i32x16){0} - 126);
    f32x16 units = sum * (f32x16)((127 - unit) << 23);
    i32x16 total = __builtin_convertvector(units, i32x16);
    total = total + ((__builtin_convertvector(total, f32x16) > units) & (units < -1));  // floor, but of (-1, 0) nothing is left
    total = total + shift_floor(pair[0], unit - own[0]) + shift_floor(pair[1], unit - own[1]);
    return __builtin_convertvector(total, f32x16) * (f32x16)((127 + unit) << 23);
}

INLINE double power_of_two(int32_t exponent) {
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

// The same of any numbers, of one row. Infinity and NaN stay; a sum that overflows becomes infinite.
static float add_any_step(float sum, const half_parts *x, const i32x16 *significand, const i32x16 *exponent, int lane, int bf16) {
    int32_t grid[4], own[2];
    int64_t product[4], pair[2];
    float special = 0;
    for (int i = 0; i < 4; i++) {
        int32_t w = significand[i][lane], e = exponent[i][lane] + 24;
        product[i] = (int64_t)w * x[i].significand, grid[i] = e - 24 + x[i].exponent;
        if (x[i].exponent == SPECIAL || e == SPECIAL)
            special += value_of(x[i].significand, x[i].exponent) * value_of(w / (1 << (24 - 2 * FRACTION(bf16))), e);
    }
    if (special != 0 || sum - sum != 0) return sum + special;
    for (int i = 0; i < 2; i++) {
        int32_t even = grid[2 * i], odd = grid[2 * i + 1];
        own[i] = even > odd ? even : odd;
        pair[i] = (product[2 * i] >> (own[i] - even < 63 ? own[i] - even : 63)) + (product[2 * i + 1] >> (own[i] - odd < 63 ? own[i] - odd : 63));
    }
    uint32_t bits;
    memcpy(&bits, &sum, 4);
    int32_t field = bits >> 23 & 0xff, leading = (field ? field - 127 : -126) - 26;
    int32_t unit = own[0] > own[1] ? own[0] : own[1];
    unit = unit > leading ? unit : leading;
    double units = (double)sum * power_of_two(-unit);
    int64_t total = (int64_t)units;
    if ((double)total > units && (units < -1 || unit <= -126)) total--;  // floor, but above 2^-126 nothing is left of (-1, 0)
    for (int i = 0; i < 2; i++) total += pair[i] >> (unit - own[i] < 63 ? unit - own[i] : 63);
    return (float)((double)total * power_of_two(unit));
}

INLINE void project_rows(const job *j, int bf16) {
    panel weights;
    f32x16 sums[TILE];
    uint8_t irregular[TILE];
    for (uint32_t row = j->first; row < j->last; row += PANEL) {
        uint32_t rows = j->last - row < PANEL ? j->last - row : PANEL;
        for (uint32_t t = 0; t < j->n; t++) sums[t] = (f32x16){0}, irregular[t] = 0;
        for (uint32_t begin = 0; begin < j->k; begin += CHUNK) {
            uint32_t count = j->k - begin < CHUNK ? j->k - begin : CHUNK;
            load_panel(&weights, j, row, rows, begin, count, bf16);
            for (uint32_t t = 0; t < j->n; t++) {
                const row_header *header = (const row_header *)j->x[t];
                const half_parts *x = (const half_parts *)(header + 1) + begin;
                f32x16 sum = sums[t];
                irregular[t] |= header->irregular || weights.irregular;  // sums after it are no multiples of 2^-126
                for (uint32_t i = 0; i < count; i += 16)
                    for (uint32_t step = 0; step < 4; step++) {
                        uint32_t at = i + (step & 1) * 8 + (step >> 1) * 4;
                        const i32x16 *significand = weights.significand + at, *exponent = weights.exponent + at;
                        if (!irregular[t]) sum = add_step(sum, x + at, significand, exponent);
                        else for (int lane = 0; lane < PANEL; lane++) sum[lane] = add_any_step(sum[lane], x + at, significand, exponent, lane, bf16);
                    }
                sums[t] = sum;
            }
        }
        for (uint32_t t = 0; t < j->n; t++) {
            float factor = ((const row_header *)j->x[t])->factor;
            for (uint32_t lane = 0; lane < rows; lane++) put(j, t, row + lane, sums[t][lane] * factor);
        }
    }
}

void project_rows_wmma_f16(const job *j) { project_rows(j, 0); }
void project_rows_wmma_bf16(const job *j) { project_rows(j, 1); }
