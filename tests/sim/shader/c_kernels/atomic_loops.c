#include "gpu.h"
/* A float maximum by compare-and-swap, 64-bit maxima and sums, and an exchange that loses nothing. */
KERNEL atomic_loops(u32 *largest, u64 *widest, u32 *sum, const float *in, const u64 *wide) {
  u32 i = group() * 64 + thread(), seen = __scoped_atomic_load_n(largest, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  float mine = in[i];
  while (mine > __builtin_bit_cast(float, seen))
    if (__scoped_atomic_compare_exchange_n(largest, &seen, __builtin_bit_cast(u32, mine), 0, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE))
      break;
  __scoped_atomic_fetch_max(widest, wide[i], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  __scoped_atomic_fetch_add(sum, (u32)wide[i], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  __scoped_atomic_fetch_xor(sum + 1, (u32)wide[i], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  __scoped_atomic_fetch_min((i32 *)sum + 2, (i32)wide[i], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
