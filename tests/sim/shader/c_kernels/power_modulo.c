#include "gpu.h"
/* a**e mod m with 64-bit operands: 128-bit products, long division. */
static u64 times(u64 a, u64 b, u64 m) {
  u64 sum = 0;
  while (b) {
    if (b & 1) sum = sum >= m - a ? sum - (m - a) : sum + a;
    a = a >= m - a ? a - (m - a) : a + a;
    b >>= 1;
  }
  return sum;
}
KERNEL power_modulo(u64 *out, const u64 *a, const u64 *e, const u64 *m) {
  u32 i = group() * 32 + thread();
  u64 modulus = m[i], base = a[i] % modulus, power = 1 % modulus;
  for (u64 left = e[i]; left; left >>= 1) {
    if (left & 1) power = times(power, base, modulus);
    base = times(base, base, modulus);
  }
  out[i] = power;
}
