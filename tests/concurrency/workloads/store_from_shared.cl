// A producer fills a tile twice; a copy engine stores each tile to global memory, and the producer waits for it.
// 1 lds-race: the copy engine does not wait for the tile
// 2 lds-race: the producer does not wait for the copy before it fills the tile again
// 3 lds-race: the producer arrives before its store
// 4 unwritten-output: the second copy goes to the place of the first
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void store_from_shared(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32];
  local uint state[2];  // full, empty
  SET_UP(state, 2, 5, 6);
  for (uint turn = 0; turn < 2; turn++) {
    if (WAVE == 0) {
      uint value = LOAD(7);
      if (turn && !FAULTY(2)) wait_for(&state[1], turn);
      if (FAULTY(3)) arrive(&state[0]);
      tile[31 - LANE] = value + turn;
      if (!FAULTY(3)) arrive(&state[0]);
    } else {
      if (!FAULTY(1)) wait_for(&state[0], turn + 1);
      if (FAULTY(8) || I < n) out[(FAULTY(4) ? 0 : turn) * n + I] = tile[LANE];
      arrive(&state[1]);
    }
  }
}
