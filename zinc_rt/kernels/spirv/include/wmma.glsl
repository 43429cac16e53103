// Products in wmma-f16, or with BF16 in wmma-bf16 (docs/wmma-f16.md), by integers, for the kernels matmul_wmma and matmul_wmma_experts: 32 rows of a
// weight by a row of x for each lane. Behind Args, which has `w`, `n`, `k` and the planes (weights.glsl).
//
// A half is a signed significand of 11 bits, of bf16 8, and an exponent; a product is the integer product of two significands
// on the grid of their exponents. The integers of a step are aligned, added and rounded to float32 once. `add_step` needs
// exponents whose sums neither overflow nor become denormal. A workgroup that meets others, which only bf16 has and which are
// rare, or infinity or NaN, computes its rows again by `add_any_step`.
#ifndef WMMA_GLSL
#define WMMA_GLSL
#include "halves.glsl"
#include "weights.glsl"

const uint ALL_ROWS = 32u, ROWS = 8u;  // ROWS at a time
const uint ROW_STRIDE = STEP + 1u;     // neighbouring rows in other banks
const int NONE = -2048, SPECIAL = 4096;  // exponents of zero, and of infinity (significand 1 or -1) and NaN (0)
const int LEAST_X = -72, LEAST_W = -30, MOST_W = 60;  // exponents that add_step takes
const uint NAN = 1u, PLUS = 2u, MINUS = 4u;  // kinds of a sum with a factor that is no finite number

shared uint parts_of[ROWS * ROW_STRIDE];  // of the weights: significand << 16 | exponent & 0xffff
shared uint irregular_of[LANES];

struct Half { int significand, exponent; };

Half decode(uint half_bits) {
    int most = (1 << EXPONENT) - 1, field = int(half_bits >> FRACTION) & most;
    int size = int(half_bits) & ((1 << FRACTION) - 1);
    if (field == most) return Half(size != 0 ? 0 : (half_bits & 0x8000u) != 0u ? -1 : 1, SPECIAL);
    size |= field != 0 ? 1 << FRACTION : 0;
    return Half((half_bits & 0x8000u) != 0u ? -size : size, size == 0 ? NONE : max(field, 1) - (most >> 1));
}

// Whether add_step takes an exponent
bool is_regular(int exponent, int least, int most) {
#ifdef BF16
    return exponent == NONE || (exponent >= least && exponent <= most);
#else
    return exponent != SPECIAL;
#endif
}

int shift_floor(int value, int by) { return value >> min(by, 31); }

// The next integer to a float32, to nearest even: both parts are exact
float rounded(int value) { return float(value >> 12) * 4096.0 + float(value & 4095); }

// Two pairs of products on their grids
void add_pairs(Half x[4], uint weights, out int own[2], out int pair[2]) {
    int product[4], grid[4];
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        int part = int(parts_of[weights + i]);
        product[i] = x[i].significand * (part >> 16) << (24u - 2u * FRACTION);
        grid[i] = x[i].exponent + bitfieldExtract(part, 0, 16) - 24;
    }
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        own[i] = max(grid[2u * i], grid[2u * i + 1u]);
        pair[i] = shift_floor(product[2u * i], own[i] - grid[2u * i])
            + shift_floor(product[2u * i + 1u], own[i] - grid[2u * i + 1u]);
    }
}

// sum + four products, rounded once. Sums are multiples of 2^-126.
float add_step(float sum, Half x[4], uint weights) {
    int own[2], pair[2];
    add_pairs(x, weights, own, pair);
    int leading = int(bits_of(sum) >> 23 & 0xffu) - (127 + 26);
    int unit = max(max(own[0], own[1]), max(leading, -126));
    float units = sum * f32(uint(127 - unit) << 23);
    int total = int(units);
    if (float(total) > units && units < -1.0) total--;  // floor, but of (-1, 0) nothing is left
    total += shift_floor(pair[0], unit - own[0]) + shift_floor(pair[1], unit - own[1]);
    return rounded(total) * f32(uint(127 + unit) << 23);
}

// The same of any numbers. Infinity and NaN stay; a sum that overflows becomes infinite.
float add_any_step(float sum, Half x[4], uint weights) {
    uint bits = bits_of(sum), size = bits & ~SIGN_BIT;
    bool negative = bits != size;
    uint kinds = size < INFINITY_BITS ? 0u : size > INFINITY_BITS ? NAN : negative ? MINUS : PLUS;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        int part = int(parts_of[weights + i]), product = x[i].significand * (part >> 16);
        if (x[i].exponent == SPECIAL || bitfieldExtract(part, 0, 16) == SPECIAL)
            kinds |= product == 0 ? NAN : product > 0 ? PLUS : MINUS;
    }
    if (kinds != 0u)
        return f32(kinds == PLUS ? INFINITY_BITS : kinds == MINUS ? INFINITY_BITS | SIGN_BIT : NAN_BITS);
    int own[2], pair[2];
    add_pairs(x, weights, own, pair);
    int field = int(size >> 23), significand = int(size & 0x7fffffu) | (field != 0 ? 0x800000 : 0);
    int grid = max(field, 1) - 150, unit = max(max(own[0], own[1]), max(field, 1) - 127 - 26), down = unit - grid;
    int total = negative ? -significand : significand;
    total = down < 0 ? total << -down : shift_floor(total, down);
    if (negative && down > 0 && significand >> min(down, 31) == 0 && unit > -126) total = 0;  // nothing is left of it
    total += shift_floor(pair[0], unit - own[0]) + shift_floor(pair[1], unit - own[1]);
    if (total == 0) return 0.0;
    uint magnitude = uint(abs(total));
    int rounded_unit = max(findMSB(magnitude) + unit - 23, -149), drop = rounded_unit - unit;
    if (drop <= 0) {
        magnitude <<= -drop;
    } else {
        uint rest = magnitude & ((1u << drop) - 1u), middle = 1u << (drop - 1);
        magnitude >>= drop;
        magnitude += uint(rest > middle || (rest == middle && (magnitude & 1u) != 0u));
    }
    int exponent = rounded_unit + 149;  // 0 of denormals; a carry out of the significand counts into it
    uint result = exponent > 253 ? INFINITY_BITS : min((uint(exponent) << 23) + magnitude, INFINITY_BITS);
    return f32(result | (total < 0 ? SIGN_BIT : 0u));
}

// What the lane has of a row's step, in a whole block or behind the last
vec4 load_step(Row row, uint step) {
    uint block = step / STEPS;
    return block < whole_blocks(args.k) ? block_weights(load_block(row, block), step % STEPS) : step_weights(row, step);
}

// Put the halves of a step of ROWS rows into shared memory. Return whether the lane's are all regular.
bool stage_rows(Row rows[ROWS], uint step) {
    bool regular = true;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        vec4 w = load_step(rows[r], step);
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            Half part = decode(to_half(w[e]));
            regular = regular && is_regular(part.exponent, LEAST_W, MOST_W);
            parts_of[r * ROW_STRIDE + 4u * lane + e] = uint(part.significand) << 16 | uint(part.exponent) & 0xffffu;
        }
    }
    return regular;
}

// Four halves of x from an element on
void load_halves(uint64_t x, uint element, out Half halves[4]) {
    U32 words = U32(x + 2u * element);
    [[unroll]] for (uint i = 0u; i < 4u; i++) halves[i] = decode(words.v[i >> 1] >> (16u * (i & 1u)) & 0xffffu);
}

// The element of the i-th four of a step: 0, 8, 4, 12 of each 16
uint find_four(uint i) { return (i >> 2) * 16u + (i & 1u) * 8u + (i >> 1 & 1u) * 4u; }

// Multiply ROWS rows of the weight from `row` on by the lane's x, whose factor stands after its halves.
void multiply_rows(uint64_t row, uint rows_left, uint64_t x, out float sums[ROWS]) {
    Row rows[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        rows[r] = row_at(row + min(r, rows_left - 1u));
        sums[r] = 0.0;
    }
    uint steps = (args.k + STEP - 1u) / STEP, step = 0u;
    bool regular = true;
    do {
        regular = stage_rows(rows, step) && regular;
        barrier();
        uint i = 0u;
        do {
            Half halves[4];
            load_halves(x, step * STEP + find_four(i), halves);
            [[unroll]] for (uint e = 0u; e < 4u; e++) regular = regular && is_regular(halves[e].exponent, LEAST_X, 15);
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                sums[r] = add_step(sums[r], halves, r * ROW_STRIDE + find_four(i));
        } while (++i < STEP / 4u);
        barrier();
    } while (++step < steps);

    irregular_of[lane] = uint(!regular);
    barrier();
    uint irregular = 0u;
    for (uint l = 0u; l < LANES; l++) irregular |= irregular_of[l];
    if (irregular != 0u) {
        uint own = 0u;  // a row at a time: short code, which is rarely needed
        do {
            float sum = 0.0;
            step = 0u;
            do {
                stage_rows(rows, step);
                barrier();
                uint i = 0u;
                do {
                    Half halves[4];
                    load_halves(x, step * STEP + find_four(i), halves);
                    sum = add_any_step(sum, halves, own * ROW_STRIDE + find_four(i));
                } while (++i < STEP / 4u);
                barrier();
            } while (++step < steps);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) sums[r] = r == own ? sum : sums[r];
        } while (++own < ROWS);
    }
    F32 factor = F32(x + 2u * ((args.k + 255u) / 256u * 256u));
    [[unroll]] for (uint r = 0u; r < ROWS; r++) sums[r] = sums[r] * factor.v[0];
}

#endif
