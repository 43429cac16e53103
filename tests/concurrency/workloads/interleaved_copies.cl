// Two copies with a counter each; the consumer waits for each just before its use.
// 1 lds-race: the consumer does not wait for the first copy
// 2 lds-race: the consumer does not wait for the second copy
// 3 lds-race: the second tile is read before the wait for it
// 4 lds-race: the consumer waits for the first counter twice
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void interleaved_copies(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][32];
  local uint full[2];
  SET_UP(full, 2, 5, 6);
  if (WAVE == 1) {
    uint value = LOAD(7);
    tile[0][LANE] = value;
    arrive(&full[0]);
    tile[1][LANE] = 3 * value;
    arrive(&full[1]);
  } else {
    if (!FAULTY(1)) wait_for(&full[0], 1);
    uint sum = tile[0][31 - LANE];
    if (FAULTY(3)) sum += tile[1][LANE];
    if (!FAULTY(2)) wait_for(&full[FAULTY(4) ? 0 : 1], 1);
    if (!FAULTY(3)) sum += tile[1][LANE];
    STORE(8, sum);
  }
}
