// 16 vectors of 16 floats, rows to columns.
#pragma once
#include "vec.h"

// Four perfect shuffles of 256 floats: each interleaves the first half with the second.
INLINE void transpose16(f32x16 v[16]) {
    for (int round = 0; round < 4; round++) {
        f32x16 w[16];
        for (int i = 0; i < 8; i++) {
            w[2 * i] = __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        for (int i = 0; i < 16; i++) v[i] = w[i];
    }
}
