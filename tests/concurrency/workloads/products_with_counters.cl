// Two products with several counters: the first signals one, the second another, and a commit covers both.
// 1 lds-race: the second accumulator is overwritten after the wait for the first product
// 2 lds-race: the first accumulator is overwritten without a wait
// 3 lds-race: the commit comes before the second product
// 4 lds-race: the second product writes the first accumulator
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void products_with_counters(global uint *out, global const uint *in, uint n) {
  local volatile uint total[2][32];
  local uint done[3];  // first product, second product, commit
  SET_UP(done, 3, 5, 6);
  if (WAVE == 1) {
    uint value = LOAD(7);
    total[0][LANE] = value * 5;
    arrive(&done[0]);
    if (FAULTY(3)) arrive(&done[2]);
    total[FAULTY(4) ? 0 : 1][LANE] = value * 7;
    arrive(&done[1]);
    if (!FAULTY(3)) arrive(&done[2]);
  } else {
    if (!FAULTY(2)) wait_for(&done[0], 1);
    uint sum = total[0][31 - LANE];
    total[0][LANE] = 42;
    if (!FAULTY(1)) wait_for(&done[2], 1);
    sum += FAULTY(4) ? 0 : total[1][LANE];
    total[1][LANE] = 42;
    STORE(8, sum);
  }
}
