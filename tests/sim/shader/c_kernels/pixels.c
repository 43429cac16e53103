#include "gpu.h"
/* Bytes and halves: RGBA to RGB565, grey, and a blur of three. */
KERNEL pixels(u16 *packed, u8 *grey, i8 *slope, const u8 *rgba, u32 n) {
  u32 i = group() * 64 + thread();
  if (i >= n) return;
  u8 r = rgba[4 * i], g = rgba[4 * i + 1], b = rgba[4 * i + 2];
  packed[i] = (r >> 3) << 11 | (g >> 2) << 5 | b >> 3;
  grey[i] = (77 * r + 150 * g + 29 * b + 128) >> 8;
  slope[i] = i ? (i8)(g - rgba[4 * i - 3]) / 2 : -1;
}
