#include "gpu.h"
/* A group's keys sorted by one bit after another: counts of ballots meet in LDS. */
kernel SIZED(128) void radix_split(global uint *data, uint bits) {
  local uint keys[128], zeros[4];
  uint lane = ID % WAVE, wave = ID / WAVE, waves = 128 / WAVE;
  uint x = data[GROUP * 128 + ID];
  for (uint bit = 0; bit < bits; bit++) {
    uint one = x >> bit & 1;
#if WAVE == 64
    ulong ones = __builtin_amdgcn_ballot_w64(one);
    uint below = __builtin_popcountl(~ones & ((1ul << lane) - 1)), here = __builtin_popcountl(~ones);
#else
    uint ones = __builtin_amdgcn_ballot_w32(one);
    uint below = __builtin_popcount(~ones & ((1u << lane) - 1)), here = __builtin_popcount(~ones);
#endif
    if (lane == 0) zeros[wave] = here;
    meet();
    uint before = 0, all = 0;
    for (uint k = 0; k < waves; k++) { before += k < wave ? zeros[k] : 0; all += zeros[k]; }
    uint rank = before + below;
    keys[one ? all + ID - rank : rank] = x;
    meet();
    x = keys[ID];
    meet();
  }
  data[GROUP * 128 + ID] = x;
}
