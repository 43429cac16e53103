#include "gpu.h"
/* One function that is given pointers into LDS, scratch and global memory. */
NOINLINE static uint sum(const uint *from, uint n) {
  uint all = 0;
  for (uint i = 0; i < n; i++) all = all * 31 + from[i];
  return all;
}
kernel SIZED(32) void generic_sum(global uint *out, global const uint *in) {
  local uint shared[32];
  uint own[4];
  shared[ID] = in[ID];
  for (uint i = 0; i < 4; i++) own[i ^ (ID & 3)] = in[ID] + i;
  meet();
  const uint *where = ID % 3 == 0 ? (const uint *)in : ID % 3 == 1 ? (const uint *)shared : (const uint *)own;
  out[ID] = sum(where, 4) + sum(shared + (ID & 15), 5);
}
