#include "gpu.h"
/* Work handed out by an LDS counter; results compacted by ballots. */
LDS u32 next, taken[128];
KERNEL shared_queue(u32 *out, u32 *count, const u32 *in, u32 n) {
  u32 t = thread();
  if (t == 0) next = 0;
  barrier();
  for (;;) {
    u32 i = __scoped_atomic_fetch_add(&next, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    if (i >= n) break;
    u32 x = in[i], bits = 0;
    while (x) x &= x - 1, bits++;
    taken[i] = bits;
  }
  barrier();
  for (u32 i = t; i < n; i += 64)
    if (taken[i] & 1) out[__scoped_atomic_fetch_add(count, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)] = in[i];
}
