#include "gpu.h"
/* Each group leaves a sum; the one that draws the last ticket adds them up. */
kernel SIZED(64) void last_group(global uint *total, global uint *sums, global atomic_uint *ticket,
                                 global const uint *in, uint groups) {
  local uint part[64];
  local uint last;
  part[ID] = in[GROUP * 64 + ID];
  meet();
  for (uint step = 32; step; step /= 2) {
    if (ID < step) part[ID] += part[ID + step];
    meet();
  }
  if (ID == 0) {
    sums[GROUP] = part[0];
    last = ADD(ticket, 1, ACQ_REL, device) == groups - 1;
  }
  meet();
  if (last && ID == 0) {
    uint all = 0;
    for (uint i = 0; i < groups; i++) all += sums[i];
    *total = all;
  }
}
