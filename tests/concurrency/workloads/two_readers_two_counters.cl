// Two readers arrive at a counter each; the writer waits for both before it overwrites the tile.
// 1 lds-race: the writer does not wait for the first reader
// 2 lds-race: the writer does not wait for the second reader
// 3 lds-race: the first reader arrives before its load
// 4 lds-race: the writer waits for the first counter twice
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier between the first store and the readers
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(96) void two_readers_two_counters(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32], copy[2][32];
  local uint done[2];
  SET_UP(done, 2, 5, 0xffff);
  if (WAVE == 0) {
    uint value = LOAD(7);
    tile[LANE] = value;
  }
  if (!FAULTY(6)) SYNC();
  if (WAVE == 0) {
    if (!FAULTY(1)) wait_for(&done[0], 1);
    if (!FAULTY(2)) wait_for(&done[FAULTY(4) ? 0 : 1], 1);
    tile[LANE] = 42;
  } else {
    if (FAULTY(3) && WAVE == 1) arrive(&done[0]);
    copy[WAVE - 1][LANE] = tile[31 - LANE];
    if (!FAULTY(3) || WAVE == 2) arrive(&done[WAVE - 1]);
  }
  SYNC();
  if (WAVE == 0) STORE(8, copy[0][LANE] + 2 * copy[1][LANE]);
}
