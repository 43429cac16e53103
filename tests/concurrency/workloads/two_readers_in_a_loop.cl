// One writer and two readers go through several phases with a counter per reader and direction.
// 1 lds-race: the writer does not wait for the first reader
// 2 lds-race: the writer does not wait for the second reader
// 3 lds-race: the first reader does not wait for the writer
// 4 lds-race: the second reader does not wait for the writer
// 5 uninitialised-lds: the counters are not initialised
// 6 lds-race: the first reader arrives before its load
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 4
kernel SIZED(96) void two_readers_in_a_loop(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[32], copy[2][32];
  local uint full[2], empty[2];
  SET_UP(full, 2, 5, 0xffff);
  SET_UP(empty, 2, 5, 0xffff);
  SYNC();
  uint value = LOAD(7), sum = 0, reader = WAVE == 2;
  for (uint turn = 0; turn < TURNS; turn++) {
    if (WAVE == 0) {
      if (!FAULTY(1)) wait_for(&empty[0], turn);
      if (!FAULTY(2)) wait_for(&empty[1], turn);
      tile[LANE] = value * (turn + 1);
      arrive(&full[0]);
      arrive(&full[1]);
    } else {
      if (!FAULTY(3 + reader)) wait_for(&full[reader], turn + 1);
      if (FAULTY(6) && !reader) arrive(&empty[0]);
      sum += tile[31 - LANE];
      if (!FAULTY(6) || reader) arrive(&empty[reader]);
    }
  }
  if (WAVE) copy[reader][LANE] = sum;
  SYNC();
  if (WAVE == 0) STORE(8, copy[0][LANE] + 2 * copy[1][LANE]);
}
