#include "gpu.h"
LDS u32 bins[64];
KERNEL histogram(u32 *out, const u8 *in, u32 n) {
  u32 t = thread();
  if (t < 64) bins[t] = 0;
  barrier();
  for (u32 i = group() * 1024 + t; i < n && i < (group() + 1) * 1024; i += 128)
    __scoped_atomic_fetch_add(&bins[in[i] / 4], 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  barrier();
  if (t < 64 && bins[t]) __scoped_atomic_fetch_add(&out[t], bins[t], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
