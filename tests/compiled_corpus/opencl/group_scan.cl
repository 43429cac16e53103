#include "gpu.h"
/* Inclusive sums over a work-group, by doubling, between two halves of LDS. */
kernel SIZED(128) void group_scan(global uint *out, global const uint *in) {
  local uint sums[2][128];
  uint at = 0;
  sums[0][ID] = in[GROUP * 128 + ID];
  meet();
  for (uint step = 1; step < 128; step *= 2, at ^= 1) {
    uint mine = sums[at][ID];
    sums[at ^ 1][ID] = ID >= step ? mine + sums[at][ID - step] : mine;
    meet();
  }
  out[GROUP * 128 + ID] = sums[at][ID];
}
