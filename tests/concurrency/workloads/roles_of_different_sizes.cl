// Readers of four and of two waves, and a writer of eight waves, which waits for all arrivals of both.
// 1 lds-race: the writer does not wait for the large reader
// 2 lds-race: the writer does not wait for the small reader
// 3 lds-race: the writer waits for one arrival of the large reader
// 4 lds-race: the small reader arrives before its load
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier between the first store and the readers
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(448) void roles_of_different_sizes(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[256], copy[6][32];
  local uint done[2];
  SET_UP(done, 2, 5, 0xffff);
  if (WAVE >= 6) {
    uint value = LOAD(7);
    tile[ID - 192] = value + WAVE;
  }
  if (!FAULTY(6)) SYNC();
  if (WAVE < 6) {
    uint small = WAVE >= 4;
    if (FAULTY(4) && small) arrive(&done[1]);
    copy[WAVE][LANE] = tile[ID] + tile[255 - ID];
    if (!FAULTY(4) || !small) arrive(&done[small]);
  } else {
    if (!FAULTY(1)) wait_for(&done[0], FAULTY(3) ? 1 : 4);
    if (!FAULTY(2)) wait_for(&done[1], 2);
    tile[ID - 192] = 42;
  }
  SYNC();
  if (WAVE == 0) STORE(8, copy[0][LANE] + 2 * copy[3][LANE] + 3 * copy[5][LANE]);
}
