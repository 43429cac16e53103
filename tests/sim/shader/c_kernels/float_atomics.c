#include "gpu.h"
/* Float sums by atomics, of values whose sum is exact in any order: global, LDS and flat. */
LDS float local;
static NOINLINE void add_to(float *where, float x) {
  __scoped_atomic_fetch_add(where, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
KERNEL float_atomics(float *out, const float *in) {
  u32 t = thread();
  float x = in[group() * 64 + t];
  if (t == 0) local = 0;
  barrier();
  __scoped_atomic_fetch_add(&local, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  __scoped_atomic_fetch_add(out, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  add_to(t & 1 ? out + 1 : (float *)&local, 2 * x);
  barrier();
  if (t == 0) out[2 + group()] = local;
}
