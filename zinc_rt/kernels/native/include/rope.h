// ROPE of one head by a position's rows of the cos and sin tables.
#pragma once
#include "vec.h"

enum { NEOX = 0, NORM = 1 };  // pairs are (j, j + pairs) or (2j, 2j + 1)

INLINE void turn16(f32x16 a, f32x16 b, f32x16 c, f32x16 s, f32x16 *first, f32x16 *second) {
    *first = a * c - b * s;
    *second = a * s + b * c;
}

// y may be x. Turns 2 * pairs dims of y in place; the others stay.
INLINE void rope_pairs(float *y, const float *cos, const float *sin, uint32_t pairs, uint32_t mode) {
    for (uint32_t j = 0; j < pairs; j += 16) {
        uint32_t n = pairs - j < 16 ? pairs - j : 16;
        f32x16 c = load_some(cos + j, n), s = load_some(sin + j, n), first, second;
        if (mode == NEOX) {
            turn16(load_some(y + j, n), load_some(y + pairs + j, n), c, s, &first, &second);
            store_some(y + j, first, n);
            store_some(y + pairs + j, second, n);
        } else {
            f32x16 low = load_some(y + 2 * j, n < 8 ? 2 * n : 16), high = {0};
            if (n > 8) high = load_some(y + 2 * j + 16, 2 * n - 16);
            turn16(
                __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31),
                c, s, &first, &second);
            low = __builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            high = __builtin_shufflevector(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            store_some(y + 2 * j, low, n < 8 ? 2 * n : 16);
            if (n > 8) store_some(y + 2 * j + 16, high, 2 * n - 16);
        }
    }
}
