#include "gpu.h"
/* A histogram: LDS atomics within the group, device atomics at the end. */
kernel SIZED(64) void bins(global atomic_uint *out, global const uchar *in, uint n) {
  local atomic_uint mine[16];
  if (ID < 16) __opencl_atomic_store(&mine[ID], 0, __ATOMIC_RELAXED, memory_scope_work_group);
  meet();
  for (uint i = GROUP * 64 + ID; i < n; i += 128)
    ADD(&mine[in[i] & 15], 1, RELAXED, work_group);
  meet();
  if (ID < 16)
    ADD(&out[ID], __opencl_atomic_load(&mine[ID], __ATOMIC_RELAXED, memory_scope_work_group), RELAXED, device);
}
