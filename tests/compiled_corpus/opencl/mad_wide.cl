#include "gpu.h"
kernel SIZED(64) void mad_wide(global uint *low, global ulong *wide, global const uint *in) {
  uint i = GROUP * 64 + ID, x = in[i], y = x * 2654435761u + i;
  low[i] = x * y + (y >> 7);
  wide[i] = (ulong)x * y + ((ulong)y << 32 | x);
  wide[i] ^= (ulong)((long)(int)x * (int)y) >> 13;
}
