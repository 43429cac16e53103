// Two products are in flight; a wait that leaves one outstanding permits reuse of the first operand only.
// 1 lds-race: the second operand is overwritten while one product is outstanding
// 2 lds-race: the first operand is overwritten without a wait
// 3 lds-race: the matrix unit arrives for the first product before its reads
// 4 lds-race: the second product reads the first operand
// 5 uninitialised-lds: the counter is not initialised
// 6 lds-race: no barrier between the operands' stores and the matrix unit
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
kernel SIZED(64) void outstanding_products(global uint *out, global const uint *in, uint n) {
  local volatile uint a[2][32];
  local uint done[1];
  SET_UP(done, 1, 5, 0xffff);
  if (WAVE == 0) {
    uint value = LOAD(7);
    a[0][LANE] = value & 255;
    a[1][LANE] = value >> 8 & 255;
  }
  if (!FAULTY(6)) SYNC();
  if (WAVE == 0) {
    if (!FAULTY(2)) wait_for(done, 1);
    a[0][LANE] = 42;
    if (!FAULTY(1)) wait_for(done, 2);
    a[1][LANE] = 42;
  } else {
    uint sum = 0;
    if (FAULTY(3)) arrive(done);
    for (uint k = 0; k < 4; k++) sum += a[0][(LANE + k) & 31] * k;
    if (!FAULTY(3)) arrive(done);
    for (uint k = 0; k < 4; k++) sum += a[FAULTY(4) ? 0 : 1][(LANE + k) & 31] * (k + 5);
    arrive(done);
    STORE(8, sum);
  }
}
