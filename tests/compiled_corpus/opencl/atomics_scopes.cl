#include "gpu.h"
#define OP(op, p, v, order, scope) __opencl_atomic_##op(p, v, __ATOMIC_##order, memory_scope_##scope)
kernel SIZED(64) void atomics_scopes(global atomic_uint *out, global atomic_ulong *wide, global const uint *in) {
  uint x = in[GROUP * 64 + ID];
  OP(fetch_add, &out[0], x, RELAXED, work_group);
  OP(fetch_sub, &out[1], x, RELAXED, device);
  OP(fetch_min, &out[2], x, RELAXED, all_svm_devices);
  OP(fetch_max, &out[3], x, ACQ_REL, device);
  OP(fetch_and, &out[4], x | 0xFFFF, RELAXED, device);
  OP(fetch_or, &out[5], x & 0xFF00FF, RELEASE, device);
  OP(fetch_xor, &out[6], x, ACQUIRE, device);
  OP(fetch_add, &wide[0], ((ulong)x << 20), RELAXED, device);
  ulong seen = __opencl_atomic_load(&wide[1], __ATOMIC_RELAXED, memory_scope_device);
  while (!__opencl_atomic_compare_exchange_weak(&wide[1], &seen, seen + (x & 7), __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED, memory_scope_device)) {}
}
