// A matrix unit reads an operand while the base wave waits to overwrite it.
// 1 lds-race: the operand is overwritten without a wait
// 2 lds-race: the base wave waits for the counter of the operand's load
// 3 lds-race: no barrier between the operand's store and the matrix unit
// 4 lds-race: the matrix unit arrives before its reads
// 5 uninitialised-lds: the counters are not initialised
// 6 uninitialised-lds: half of the operand is not stored
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void pending_operand_read(global uint *out, global const uint *in, uint n) {
  local volatile uint a[32];
  local uint state[2];
  SET_UP(state, 2, 5, 0xffff);
  if (WAVE == 0) {
    uint value = LOAD(7);
    if (!FAULTY(6) || LANE & 1) a[LANE] = value & 255;
    arrive(&state[0]);
  }
  if (!FAULTY(3)) SYNC();
  if (WAVE == 0) {
    if (!FAULTY(1)) wait_for(&state[FAULTY(2) ? 0 : 1], 1);
    a[LANE] = 42;
  } else {
    if (FAULTY(4)) arrive(&state[1]);
    uint sum = 0;
    for (uint k = 0; k < 8; k++) sum += a[(LANE + k) & 31] * k;
    if (!FAULTY(4)) arrive(&state[1]);
    STORE(8, sum);
  }
}
