#include "gpu.h"
kernel SIZED(64) void halo_blur(global uint *out, global const uint *in, uint n) {
  local uint near[66];
  uint i = GROUP * 64 + ID;
  near[ID + 1] = i < n ? in[i] : 0;
  if (ID == 0) near[0] = i > 0 ? in[i - 1] : 0;
  if (ID == 63) near[65] = i + 1 < n ? in[i + 1] : 0;
  meet();
  if (i < n) out[i] = near[ID] + 2 * near[ID + 1] + near[ID + 2];
}
