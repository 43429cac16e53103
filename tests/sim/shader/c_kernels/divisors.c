#include "gpu.h"
/* Greatest common divisors and smallest factors: loops of very different length in one wave. */
KERNEL divisors(u32 *out, const u32 *a, const u32 *b) {
  u32 i = group() * 64 + thread(), x = a[i], y = b[i], factor = 2;
  while (y) {
    u32 rest = x % y;
    x = y, y = rest;
  }
  for (u32 n = a[i]; factor * factor <= n; factor++)
    if (n % factor == 0) break;
  out[2 * i] = x;
  out[2 * i + 1] = factor * factor <= a[i] ? factor : a[i];
}
