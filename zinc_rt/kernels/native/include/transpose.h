// 16 rows of dwords as vectors across the rows.
#pragma once
#include "vec.h"

INLINE i32x16 low32(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
INLINE i32x16 high32(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
INLINE i32x16 low64(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
INLINE i32x16 high64(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
INLINE i32x16 even128(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
INLINE i32x16 odd128(i32x16 a, i32x16 b) {
    return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// v[row] of 16 columns -> v[column] of 16 rows.
INLINE void transpose16(i32x16 v[16]) {
    i32x16 t[16], u[16];
#pragma unroll
    for (int i = 0; i < 8; i++) t[2 * i] = low32(v[2 * i], v[2 * i + 1]), t[2 * i + 1] = high32(v[2 * i], v[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u[4 * i] = low64(t[4 * i], t[4 * i + 2]), u[4 * i + 1] = high64(t[4 * i], t[4 * i + 2]);
        u[4 * i + 2] = low64(t[4 * i + 1], t[4 * i + 3]), u[4 * i + 3] = high64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        t[i] = even128(u[i], u[4 + i]), t[4 + i] = odd128(u[i], u[4 + i]);
        t[8 + i] = even128(u[8 + i], u[12 + i]), t[12 + i] = odd128(u[8 + i], u[12 + i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = even128(t[i], t[8 + i]), v[8 + i] = odd128(t[i], t[8 + i]);
        v[4 + i] = even128(t[4 + i], t[12 + i]), v[12 + i] = odd128(t[4 + i], t[12 + i]);
    }
}

// The same of floats.
INLINE void transpose16_f32(f32x16 v[16]) {
    i32x16 t[16];
    for (int i = 0; i < 16; i++) t[i] = (i32x16)v[i];
    transpose16(t);
    for (int i = 0; i < 16; i++) v[i] = (f32x16)t[i];
}

// The 16 bytes at `offset` of each row: dword c of all rows in v[c].
INLINE void transpose4(const uint8_t *const rows[16], size_t offset, i32x16 v[4]) {
    i32x16 u[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) memcpy((uint8_t *)&u[i] + 16 * q, rows[4 * q + i] + offset, 16);
    i32x16 a = low32(u[0], u[1]), b = high32(u[0], u[1]), c = low32(u[2], u[3]), d = high32(u[2], u[3]);
    v[0] = low64(a, c), v[1] = high64(a, c), v[2] = low64(b, d), v[3] = high64(b, d);
}

// The 64 bytes at `offset` of each row: dword c of all rows in v[c].
INLINE void transpose64(const uint8_t *const rows[16], size_t offset, i32x16 v[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++) memcpy(&v[i], rows[i] + offset, 64);
    transpose16(v);
}
