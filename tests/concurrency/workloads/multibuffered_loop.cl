// A copy engine runs ahead of a matrix unit through a ring of three tiles with full and empty counters.
// 1 lds-race: the copy engine does not wait for an empty tile
// 2 lds-race: the matrix unit does not wait for a full tile
// 3 lds-race: two tiles for a protocol of three
// 4 lds-race: the matrix unit releases a tile before it reads it
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 7
kernel SIZED(64) void multibuffered_loop(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[3][32];
  local uint full[3], empty[3];
  SET_UP(full, 3, 5, 0xffff);
  SET_UP(empty, 3, 5, 6);
  uint value = LOAD(7), sum = 0;
  for (uint turn = 0; turn < TURNS; turn++) {
    uint slot = turn % 3, at = FAULTY(3) ? turn % 2 : slot;
    if (WAVE == 1) {
      if (!FAULTY(1)) wait_for(&empty[slot], turn / 3);
      tile[at][LANE] = value * (turn + 1);
      arrive(&full[slot]);
    } else {
      if (!FAULTY(2)) wait_for(&full[slot], turn / 3 + 1);
      if (FAULTY(4)) arrive(&empty[slot]);
      sum += tile[at][31 - LANE];
      if (!FAULTY(4)) arrive(&empty[slot]);
    }
  }
  if (WAVE == 0) STORE(8, sum);
}
