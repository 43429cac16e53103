// Two partitions keep two tiles each in global memory; each wave reads its partition's tiles only.
// 1 race: a partition reads the tiles of the other one
// 2 race: a partition stores to the tiles of the other one
// 3 race: the last sum reads the other partition's result without a barrier
// 4 race: both workgroups use one place of the scratch memory
// 5 barrier-mismatch: one wave leaves before the last barrier
// 6 out-of-bounds: the tile's number is not limited
// 7 out-of-bounds: the load has no mask
// 8 out-of-bounds: the store has no mask
#include "workload.h"
#define TURNS 4
kernel SIZED(64) void groups_through_memory(global uint *out, global const uint *in, global uint *scratch,
                                            uint n) {
  global uint *tiles = scratch + (FAULTY(4) ? 0 : GROUP) * 128;
  uint value = LOAD(7), sum = 0;
  uint store_to = 2 * (FAULTY(2) ? 0 : WAVE), load_from = 2 * (FAULTY(1) ? 0 : WAVE);
  tiles[32 * store_to + LANE] = value;
  for (uint turn = 1; turn < TURNS; turn++) {
    uint to = FAULTY(6) ? turn + 16 : turn & 1, from = turn - 1 & 1;
    tiles[32 * (store_to + to) + LANE] = value + turn;
    sum += tiles[32 * (load_from + from) + LANE];
  }
  tiles[32 * store_to + LANE] = sum + WAVE;
  if (FAULTY(5) && WAVE == 1) return;
  if (!FAULTY(3)) SYNC();
  if (WAVE == 0) STORE(8, tiles[LANE] + 2 * tiles[64 + LANE]);
}
