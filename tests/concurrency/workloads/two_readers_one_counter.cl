// Two readers arrive at one counter of two arrivals; the writer waits for both.
// 1 lds-race: the writer does not wait
// 2 lds-race: the second reader does not arrive, and the writer waits for one
// 3 lds-race: one reader arrives twice, before its load too
// 4 lds-race: the second reader arrives before its load
// 5 uninitialised-lds: the counter is not initialised
// 6 lds-race: no barrier between the first store and the readers
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(96) void two_readers_one_counter(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32], copy[2][32];
  local uint done[1];
  SET_UP(done, 1, 5, 0xffff);
  if (WAVE == 0) {
    uint value = LOAD(7);
    tile[LANE] = value;
  }
  if (!FAULTY(6)) SYNC();
  if (WAVE == 0) {
    if (!FAULTY(1)) wait_for(done, FAULTY(2) ? 1 : 2);
    tile[LANE] = 42;
  } else {
    if (FAULTY(3) && WAVE == 1) arrive(done);
    if (FAULTY(4) && WAVE == 2) arrive(done);
    copy[WAVE - 1][LANE] = tile[31 - LANE];
    if (WAVE == 1 || !(FAULTY(2) || FAULTY(3) || FAULTY(4))) arrive(done);
  }
  SYNC();
  if (WAVE == 0) STORE(8, copy[0][LANE] + 2 * copy[1][LANE]);
}
