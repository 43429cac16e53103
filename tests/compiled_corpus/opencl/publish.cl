#include "gpu.h"
/* Group 0 writes and raises a flag with release; the others wait for it with acquire. */
kernel SIZED(32) void publish(global uint *out, global uint *box, global atomic_uint *flag, global const uint *in) {
  if (GROUP == 0) {
    box[ID] = in[ID] * 3;
    out[ID] = in[ID];
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    if (ID == 0) __opencl_atomic_store(flag, 1, __ATOMIC_RELAXED, memory_scope_device);
    return;
  }
  while (__opencl_atomic_load(flag, __ATOMIC_ACQUIRE, memory_scope_device) == 0) {}
  out[GROUP * 32 + ID] = box[ID] + GROUP;
}
