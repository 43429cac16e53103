// A producer stores a tile and arrives; a consumer waits, loads the tile and stores it to a second one.
// 1 lds-race: the consumer does not wait
// 2 lds-race: the producer arrives before its store
// 3 lds-race: the final load does not wait for the second tile
// 4 uninitialised-lds: the consumer stores to the wrong tile
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void store_wait_load(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[3][32];
  local uint full[2];
  SET_UP(full, 2, 5, 6);
  if (WAVE == 1) {
    uint value = LOAD(7);
    if (FAULTY(2)) arrive(&full[0]);
    tile[0][LANE] = value;
    if (!FAULTY(2)) arrive(&full[0]);
    if (!FAULTY(3)) wait_for(&full[1], 1);
    STORE(8, tile[1][LANE]);
  } else {
    if (!FAULTY(1)) wait_for(&full[0], 1);
    tile[FAULTY(4) ? 2 : 1][LANE] = tile[0][31 - LANE];
    arrive(&full[1]);
  }
}
