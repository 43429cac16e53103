#include "gpu.h"
/* Radix 2 over 64 points in LDS, twiddles from memory. */
LDS float re[64], im[64];
KERNEL fft(float *out, const float *in, const float *twiddle) {
  u32 t = thread();
  const float *mine = in + group() * 128;
  for (u32 i = t; i < 64; i += 32) {
    u32 to = __builtin_bitreverse32(i) >> 26;
    re[to] = mine[2 * i], im[to] = mine[2 * i + 1];
  }
  for (u32 half = 1; half < 64; half *= 2) {
    barrier();
    u32 k = t & (half - 1), low = (t - k) * 2 + k, high = low + half;
    float c = twiddle[2 * (k * 32 / half)], s = twiddle[2 * (k * 32 / half) + 1];
    float x = re[high] * c - im[high] * s, y = re[high] * s + im[high] * c;
    re[high] = re[low] - x, im[high] = im[low] - y;
    re[low] += x, im[low] += y;
  }
  barrier();
  for (u32 i = t; i < 64; i += 32) out[(group() * 64 + i) * 2] = re[i], out[(group() * 64 + i) * 2 + 1] = im[i];
}
