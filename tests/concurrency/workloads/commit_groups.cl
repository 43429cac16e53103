// Each wave issues two asynchronous loads, and stores each to LDS after a wait with its count; neighbours read them.
// 1 wait: the last wait leaves one load outstanding
// 2 wait: no wait before the first use
// 3 lds-race: no barrier after the stores
// 4 lds-race: the tile is reused without a barrier after the reads
// 5 barrier-mismatch: one wave leaves before the last barrier
// 6 lds-race: the second store goes to the first tile of the other wave
// 7 out-of-bounds: the address of the load is not limited
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define ISSUE(result, at) __asm__ volatile("global_load_b32 %0, %1, off" : "=&v"(result) : "v"(at) : "memory")
#define SETTLE(count, a, b) __asm__ volatile("s_wait_loadcnt " #count : "+v"(a), "+v"(b) : : "memory")
kernel SIZED(64) void commit_groups(global uint *out, global const uint *in, uint n) {
  local volatile uint tile[2][2][32];
  uint i = FAULTY(7) ? I : min(I, n - 1), first, second;
  ISSUE(first, in + i);
  ISSUE(second, in + (n - 1 - min(i, n - 1)));
  if (!FAULTY(2)) SETTLE(1, first, second);
  tile[0][WAVE][LANE] = first;
  if (FAULTY(1)) SETTLE(1, first, second); else SETTLE(0, first, second);
  tile[FAULTY(6) ? 0 : 1][FAULTY(6) ? 1 - WAVE : WAVE][LANE] = second;
  if (!FAULTY(3)) SYNC();
  uint sum = tile[0][1 - WAVE][31 - LANE] + 2 * tile[FAULTY(6) ? 0 : 1][1 - WAVE][LANE];
  if (!FAULTY(4)) SYNC();
  tile[0][WAVE][31 - LANE] = sum;
  if (FAULTY(5) && WAVE == 1) return;
  SYNC();
  if (WAVE == 0) STORE(8, tile[0][0][LANE] + tile[0][1][LANE]);
}
