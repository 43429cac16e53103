#include "gpu.h"
kernel SIZED(64) void collatz(global uint *out, uint n, uint most) {
  uint i = GROUP * 64 + ID;
  if (i >= n) return;
  ulong x = i + 1;
  uint steps = 0;
  while (x != 1) {
    if (steps == most) break;
    x = x & 1 ? 3 * x + 1 : x >> 1;
    steps++;
  }
  out[i] = steps;
}
