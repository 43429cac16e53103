// Two producers fill a tile each; two consumers wait until both are full, and both release both tiles.
// 1 lds-race: the first consumer does not wait
// 2 lds-race: the second consumer does not wait
// 3 lds-race: the first producer does not wait for the consumers
// 4 lds-race: the second producer stores to the tile of the first
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: the second consumer arrives before its load
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 3
kernel SIZED(128) void two_producers_two_consumers(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][32], copy[2][32];
  local uint state[2];  // full, empty
  SET_UP(state, 2, 5, 0xffff);
  SYNC();
  uint value = LOAD(7), sum = 0, which = WAVE & 1;
  for (uint turn = 0; turn < TURNS; turn++) {
    if (WAVE < 2) {
      if (turn && (!FAULTY(3) || which)) wait_for(&state[1], 2 * turn);
      tile[FAULTY(4) ? 0 : which][LANE] = value * (which + 1) + turn;
      arrive(&state[0]);
    } else {
      if (!FAULTY(1 + which)) wait_for(&state[0], 2 * turn + 2);
      if (FAULTY(6) && which) arrive(&state[1]);
      sum += FAULTY(4) ? tile[0][31 - LANE] : tile[which][31 - LANE];
      if (!FAULTY(6) || !which) arrive(&state[1]);
    }
  }
  if (WAVE >= 2) copy[which][LANE] = sum;
  SYNC();
  if (WAVE == 0) STORE(8, copy[0][LANE] + 2 * copy[1][LANE]);
}
