#include "gpu.h"
/* Jumps into the middle of a loop, and a way out of two. */
KERNEL irreducible(u32 *out, const u32 *in) {
  u32 i = group() * 64 + thread(), x = in[i], steps = 0;
  if (x & 1) goto odd;
even:
  x /= 2;
  if (++steps > 60) goto done;
  if (x & 1) goto odd;
  goto even;
odd:
  if (x <= 1) goto done;
  for (u32 k = 0; k < 3; k++) {
    x = x * 3 + 1;
    if (++steps > 60) goto done;
    if (!(x & 1)) goto even;
  }
done:
  out[i] = x << 8 | steps;
}
