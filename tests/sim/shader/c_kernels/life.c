#include "gpu.h"
KERNEL life(u8 *out, const u8 *in, u32 width, u32 height) {
  u32 i = group() * 64 + thread(), x = i % width, y = i / width, near = 0;
  if (y >= height) return;
  for (i32 dy = -1; dy <= 1; dy++)
    for (i32 dx = -1; dx <= 1; dx++)
      if (dx || dy) near += in[(y + dy + height) % height * width + (x + dx + width) % width];
  out[i] = near == 3 || (near == 2 && in[i]);
}
