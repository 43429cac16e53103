// Products in wmma-f16 (docs/wmma-f16.md) by integers, for the kernels matmul_wmma and matmul_wmma_experts: 32 rows of a
// weight by a row of x for each lane. Behind Args, which has `w`, `n`, `k` and the planes (weights.glsl).
//
// A half is a signed significand of 11 bits and an exponent; a product is the integer product of two significands on the grid
// of their exponents. The integers of a step are aligned, added and rounded to float32 once.
#ifndef WMMA_GLSL
#define WMMA_GLSL
#include "rounding.glsl"
#include "weights.glsl"

const uint ALL_ROWS = 32u, ROWS = 8u;  // ROWS at a time
const uint ROW_STRIDE = STEP + 1u;     // neighbouring rows in other banks
const int NONE = -2048, SPECIAL = 4096;  // exponents of zero, and of infinity (significand 1 or -1) and NaN (0)
const uint NAN = 1u, PLUS = 2u, MINUS = 4u;  // kinds of a sum with a factor that is no finite number

shared uint parts_of[ROWS * ROW_STRIDE];  // of the weights: significand << 16 | exponent & 0xffff
shared uint special_of[LANES];

struct Half { int significand, exponent; };

Half decode(uint half_bits) {
    int field = int(half_bits >> 10 & 31u), size = int(half_bits & 1023u);
    if (field == 31) return Half(size != 0 ? 0 : (half_bits & 0x8000u) != 0u ? -1 : 1, SPECIAL);
    size |= field != 0 ? 1024 : 0;
    return Half((half_bits & 0x8000u) != 0u ? -size : size, size == 0 ? NONE : max(field, 1) - 15);
}

int shift_floor(int value, int by) { return value >> min(by, 31); }

// The next integer to a float32, to nearest even: both parts are exact
float rounded(int value) { return float(value >> 12) * 4096.0 + float(value & 4095); }

// sum + four products, rounded once. Sums are multiples of 2^-52 below 2^96.
float add_step(float sum, Half x[4], uint weights) {
    int product[4], grid[4], own[2], pair[2];
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        int part = int(parts_of[weights + i]);
        product[i] = x[i].significand * (part >> 16) * 16;
        grid[i] = x[i].exponent + bitfieldExtract(part, 0, 16) - 24;
    }
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        own[i] = max(grid[2u * i], grid[2u * i + 1u]);
        pair[i] = shift_floor(product[2u * i], own[i] - grid[2u * i])
            + shift_floor(product[2u * i + 1u], own[i] - grid[2u * i + 1u]);
    }
    int leading = int(bits_of(sum) >> 23 & 0xffu) - (127 + 26);
    int unit = max(max(own[0], own[1]), max(leading, -78));
    float units = sum * f32(uint(127 - unit) << 23);
    int total = int(units);
    if (float(total) > units && units < -1.0) total--;  // floor, but of (-1, 0) nothing is left
    total += shift_floor(pair[0], unit - own[0]) + shift_floor(pair[1], unit - own[1]);
    return rounded(total) * f32(uint(127 + unit) << 23);
}

// The kinds of these products that are no finite numbers
uint special_kinds(Half x[4], uint weights) {
    uint kinds = 0u;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        int part = int(parts_of[weights + i]), product = x[i].significand * (part >> 16);
        if (x[i].exponent == SPECIAL || bitfieldExtract(part, 0, 16) == SPECIAL)
            kinds |= product == 0 ? NAN : product > 0 ? PLUS : MINUS;
    }
    return kinds;
}

// What the lane has of a row's step, in a whole block or behind the last
vec4 load_step(Row row, uint step) {
    uint block = step / STEPS;
    return block < whole_blocks(args.k) ? block_weights(load_block(row, block), step % STEPS) : step_weights(row, step);
}

// Put the halves of a step of ROWS rows into shared memory. Return whether the lane's are all finite.
bool stage_rows(Row rows[ROWS], uint step) {
    bool finite = true;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        vec4 w = load_step(rows[r], step);
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            Half part = decode(float_to_half(w[e]));
            finite = finite && part.exponent != SPECIAL;
            parts_of[r * ROW_STRIDE + 4u * lane + e] = uint(part.significand) << 16 | uint(part.exponent) & 0xffffu;
        }
    }
    return finite;
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
    bool finite = true;
    do {
        finite = stage_rows(rows, step) && finite;
        barrier();
        uint i = 0u;
        do {
            Half halves[4];
            load_halves(x, step * STEP + find_four(i), halves);
            [[unroll]] for (uint e = 0u; e < 4u; e++) finite = finite && halves[e].exponent != SPECIAL;
            [[unroll]] for (uint r = 0u; r < ROWS; r++)
                sums[r] = add_step(sums[r], halves, r * ROW_STRIDE + find_four(i));
        } while (++i < STEP / 4u);
        barrier();
    } while (++step < steps);

    special_of[lane] = uint(!finite);
    barrier();
    uint special = 0u;
    for (uint l = 0u; l < LANES; l++) special |= special_of[l];
    if (special != 0u) {
        uint kinds[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) kinds[r] = 0u;
        step = 0u;
        do {
            stage_rows(rows, step);
            barrier();
            uint i = 0u;
            do {
                Half halves[4];
                load_halves(x, step * STEP + find_four(i), halves);
                [[unroll]] for (uint r = 0u; r < ROWS; r++)
                    kinds[r] |= special_kinds(halves, r * ROW_STRIDE + find_four(i));
            } while (++i < STEP / 4u);
            barrier();
        } while (++step < steps);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            if (kinds[r] == PLUS) sums[r] = f32(INFINITY_BITS);
            else if (kinds[r] == MINUS) sums[r] = f32(INFINITY_BITS | SIGN_BIT);
            else if (kinds[r] != 0u) sums[r] = f32(NAN_BITS);
        }
    }
    F32 factor = F32(x + 2u * ((args.k + 255u) / 256u * 256u));
    [[unroll]] for (uint r = 0u; r < ROWS; r++) sums[r] = sums[r] * factor.v[0];
}

#endif
