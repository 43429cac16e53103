// Every wave loads the next tile asynchronously while it computes the present one; two tiles in turn.
// 1 lds-race: no barrier in the loop
// 2 lds-race: one tile for both turns
// 3 wait: the loaded value is stored without a wait
// 4 out-of-bounds: the last turn loads one more tile
// 5 uninitialised-lds: the first tile is not stored
// 6 barrier-mismatch: one wave leaves before the last barrier
// 7 out-of-bounds: the address of the load is not limited
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 3
kernel SIZED(64) void double_buffered_registers(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][64];
  uint i = FAULTY(7) ? I : min(I, n - 1), next = in[i] + WAVE, sum = 0;
  if (!FAULTY(5)) tile[0][ID] = next;
  SYNC();
  for (uint turn = 0; turn < TURNS; turn++) {
    uint slot = FAULTY(2) ? 0 : turn & 1;
    global const uint *at = in + (FAULTY(4) && turn == TURNS - 1 ? n + LANE : i);
    __asm__ volatile("global_load_b32 %0, %1, off" : "=&v"(next) : "v"(at) : "memory");
    sum += tile[slot][63 - ID] * (turn + 1);
    if (!FAULTY(3)) __asm__ volatile("s_wait_loadcnt 0" : "+v"(next) : : "memory");
    tile[FAULTY(2) ? 0 : slot ^ 1][ID] = next + turn;
    if (FAULTY(6) && WAVE == 1 && turn == TURNS - 1) return;
    if (!FAULTY(1)) SYNC();
  }
  if (WAVE == 0) STORE(8, sum);
}
