#include "gpu.h"
kernel SIZED(64) void sum_of_bytes(global int *out, global const char4 *a, global const char4 *b, uint n) {
  int sum = 0;
  for (uint i = ID; i < n; i += 64) {
    int4 p = __builtin_convertvector(a[GROUP * n + i], int4) * __builtin_convertvector(b[i], int4);
    sum += p.x + p.y + p.z + p.w;
  }
  local int parts[64];
  parts[ID] = sum;
  meet();
  if (ID < 8) {
    int all = 0;
    for (uint k = 0; k < 8; k++) all += parts[ID * 8 + k];
    out[GROUP * 8 + ID] = all;
  }
}
