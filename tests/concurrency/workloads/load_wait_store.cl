// A reader loads a tile and arrives; a writer waits for it before it overwrites the tile.
// 1 lds-race: the writer does not wait
// 2 lds-race: the reader arrives before its load
// 3 lds-race: no barrier between the first store and the reader
// 4 lds-race: the result is loaded without a wait for the writer
// 5 uninitialised-lds: the counters are not initialised
// 6 uninitialised-lds: the tile is not filled
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void load_wait_store(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32];
  local uint state[2];
  SET_UP(state, 2, 5, 0xffff);
  if (WAVE == 0) {
    uint value = LOAD(7);
    if (!FAULTY(6)) tile[LANE] = value;
  }
  if (!FAULTY(3)) SYNC();
  if (WAVE == 1) {
    if (FAULTY(2)) arrive(&state[0]);
    uint value = tile[31 - LANE];
    if (!FAULTY(2)) arrive(&state[0]);
    if (!FAULTY(4)) wait_for(&state[1], 1);
    STORE(8, value + tile[LANE]);
  } else {
    if (!FAULTY(1)) wait_for(&state[0], 1);
    tile[LANE] = 3 * LANE;
    arrive(&state[1]);
  }
}
