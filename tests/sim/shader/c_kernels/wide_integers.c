#include "gpu.h"
typedef unsigned __int128 u128;
KERNEL wide_integers(u128 *out, const u128 *a, const u128 *b) {
  u32 i = group() * 32 + thread();
  u128 x = a[i], y = b[i];
  out[4 * i] = x + y;
  out[4 * i + 1] = x * y;
  out[4 * i + 2] = x >> (y & 127) | x << (-y & 127);
  out[4 * i + 3] = x < y ? y - x : x - y;
}
