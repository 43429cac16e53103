// A copy engine fills two tiles and arrives once for both.
// 1 lds-race: the consumer does not wait
// 2 lds-race: the copy arrives between its two stores
// 3 uninitialised-lds: the second tile is not copied
// 4 lds-out-of-bounds: the consumer reads a tile behind the last one
// 5 uninitialised-lds: the counter is not initialised
// 6 lds-race: no barrier after the counter's initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void two_copies_one_counter(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][32];
  local uint full[1];
  SET_UP(full, 1, 5, 6);
  if (WAVE == 1) {
    uint value = LOAD(7);
    tile[0][LANE] = value;
    if (FAULTY(2)) arrive(full);
    if (!FAULTY(3)) tile[1][LANE] = 3 * value;
    if (!FAULTY(2)) arrive(full);
  } else {
    if (!FAULTY(1)) wait_for(full, 1);
    uint second = FAULTY(4) ? n : 1;
    STORE(8, tile[0][31 - LANE] + tile[second][LANE]);
  }
}
