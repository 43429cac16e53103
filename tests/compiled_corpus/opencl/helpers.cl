#include "gpu.h"
struct Pair { uint a, b; ulong c; };
NOINLINE static void step(struct Pair *p, uint x) { p->a += x * 5; p->b ^= p->a >> 3; p->c = p->c * 3 + p->b; }
NOINLINE static ulong fold(const struct Pair *p, uint n) {
  ulong sum = 0;
  for (uint i = 0; i < n; i++) sum = sum * 17 + p[i].c + p[i].a;
  return sum;
}
kernel SIZED(64) void helpers(global ulong *out, global const uint *in) {
  struct Pair pairs[3];
  uint i = GROUP * 64 + ID, x = in[i];
  for (uint k = 0; k < 3; k++) { pairs[k].a = k; pairs[k].b = x; pairs[k].c = x + k; }
  for (uint k = 0; k < 6; k++) step(&pairs[(x + k) % 3], in[i] + k);
  out[i] = fold(pairs, 3);
}
