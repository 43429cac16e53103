// A copy engine fills a tile and arrives; a consumer waits for it.
// 1 lds-race: the consumer does not wait
// 2 lds-race: the copy arrives before its store
// 3 uninitialised-lds: the copy leaves half of the tile out
// 4 lds-race: the consumer waits for the phase before
// 5 uninitialised-lds: the counter is not initialised
// 6 lds-race: no barrier after the counter's initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void copy_wait(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32];
  local uint full[1];
  SET_UP(full, 1, 5, 6);
  if (WAVE == 1) {
    uint value = LOAD(7);
    if (FAULTY(2)) arrive(full);
    if (!FAULTY(3) || LANE < 16) tile[LANE] = value;
    if (!FAULTY(2)) arrive(full);
  } else {
    if (!FAULTY(1)) wait_for(full, FAULTY(4) ? 0 : 1);
    STORE(8, tile[31 - LANE]);
  }
}
