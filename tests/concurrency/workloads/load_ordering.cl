// A producer fills two tiles with a counter each; the consumer must read each tile after the wait for its counter.
// 1 lds-race: the second tile is read after the wait for the first counter
// 2 lds-race: the consumer does not wait for the first counter
// 3 lds-race: the producer arrives for both tiles after the first store
// 4 lds-race: the producer does not wait for the consumer
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: the consumer arrives before its last load
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 3
kernel SIZED(64) void load_ordering(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][32];
  local uint state[3];
  SET_UP(state, 3, 5, 0xffff);
  SYNC();
  uint value = LOAD(7), sum = 0;
  for (uint turn = 0; turn < TURNS; turn++) {
    if (WAVE == 1) {
      if (!FAULTY(4)) wait_for(&state[2], turn);
      tile[0][LANE] = value + turn;
      arrive(&state[0]);
      if (FAULTY(3)) arrive(&state[1]);
      tile[1][LANE] = value * 3 + turn;
      if (!FAULTY(3)) arrive(&state[1]);
    } else {
      if (!FAULTY(2)) wait_for(&state[0], turn + 1);
      sum += tile[0][31 - LANE];
      if (FAULTY(1)) sum += tile[1][LANE];
      wait_for(&state[1], turn + 1);
      if (FAULTY(6)) arrive(&state[2]);
      if (!FAULTY(1)) sum += tile[1][LANE];
      if (!FAULTY(6)) arrive(&state[2]);
    }
  }
  if (WAVE == 0) STORE(8, sum);
}
