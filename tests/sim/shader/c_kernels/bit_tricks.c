#include "gpu.h"
static u32 spread(u32 x) {
  x = (x | x << 8) & 0x00ff00ff;
  x = (x | x << 4) & 0x0f0f0f0f;
  x = (x | x << 2) & 0x33333333;
  return (x | x << 1) & 0x55555555;
}
KERNEL bit_tricks(u32 *out, const u32 *in) {
  u32 i = group() * 64 + thread(), x = in[i], *to = out + i * 8;
  to[0] = __builtin_popcount(x) | __builtin_clz(x | 1) << 8 | __builtin_ctz(x | 1 << 31) << 16;
  to[1] = __builtin_bitreverse32(x);
  to[2] = __builtin_bswap32(x);
  to[3] = x ^ x >> 1;
  to[4] = spread(x & 0xffff) | spread(x >> 16) << 1;
  to[5] = x << (x & 31) | x >> (-x & 31);
  to[6] = (u32)((i32)x >> 7) + (x & -x);
  to[7] = x & (x - 1) ? x % 3 : ~x;
}
