#include "gpu.h"
KERNEL mandelbrot(u16 *out, u32 width, float left, float top, float step, u32 most) {
  u32 i = group() * 64 + thread();
  float cx = left + (float)(i % width) * step, cy = top + (float)(i / width) * step, x = 0, y = 0;
  u32 n = 0;
  while (n < most && x * x + y * y <= 4.0f) {
    float next = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = next;
    n++;
  }
  out[i] = n;
}
