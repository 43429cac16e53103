#include "gpu.h"
KERNEL random_numbers(u32 *out, u64 seed, u32 rounds) {
  u32 i = group() * 64 + thread(), x = 2463534242u + i;
  u64 state = seed + i * 0x9e3779b97f4a7c15;
  u32 mixed = 0;
  for (u32 k = 0; k < rounds; k++) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    u64 old = state;
    state = old * 6364136223846793005 + 1442695040888963407;
    u32 s = (old >> 18 ^ old) >> 27, r = old >> 59;
    mixed += s >> r | s << (-r & 31);
  }
  out[2 * i] = x;
  out[2 * i + 1] = mixed;
}
