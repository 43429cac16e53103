#include "gpu.h"
/* Real calls, a stack in scratch. */
static NOINLINE u32 ackermann(u32 m, u32 n) {
  if (!m) return n + 1;
  return n ? ackermann(m - 1, ackermann(m, n - 1)) : ackermann(m - 1, 1);
}
static NOINLINE u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
KERNEL recursion(u32 *out, const u32 *in) {
  u32 i = thread();
  out[2 * i] = ackermann(in[i] % 3, in[i] / 3 % 4);
  out[2 * i + 1] = fibonacci(in[i] % 11);
}
