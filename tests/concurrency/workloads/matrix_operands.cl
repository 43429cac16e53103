// A matrix unit reads two operand tiles and accumulates into a third; the base wave fills and reads them.
// 1 lds-race: the matrix unit does not wait for its operands
// 2 lds-race: an operand is overwritten while the matrix unit may read it
// 3 lds-race: the accumulator is read before the matrix unit has arrived
// 4 uninitialised-lds: the accumulator is not zeroed
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: no barrier after the counters' initialisation
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void matrix_operands(global uint *out, global const uint *in, uint n) {
  local volatile uint a[32], b[32], total[32];
  local uint state[2];
  SET_UP(state, 2, 5, 6);
  if (WAVE == 0) {
    uint value = LOAD(7);
    a[LANE] = value & 255;
    b[LANE] = LANE;
    if (!FAULTY(4)) total[LANE] = 0;
    arrive(&state[0]);
    if (FAULTY(2)) a[LANE] = 42;
    if (!FAULTY(3)) wait_for(&state[1], 1);
    STORE(8, total[LANE]);
  } else {
    if (!FAULTY(1)) wait_for(&state[0], 1);
    uint sum = total[LANE];
    for (uint k = 0; k < 4; k++) sum += a[(LANE + k) & 31] * b[k];
    total[LANE] = sum;
    arrive(&state[1]);
  }
}
