// Wave roles and arrival counters (mbarriers) for the workloads. A wave is a role: a copy engine, a matrix unit, a
// producer or a consumer. FAULT is 0 for the correct program, else the number of the injected fault.
#pragma once
#ifndef FAULT
#define FAULT 0
#endif
#define FAULTY(n) (FAULT == (n))
#define SIZED(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#define ID ((uint)get_local_id(0))
#define GROUP ((uint)get_group_id(0))
#define LANE (ID & 31)
#define WAVE (__builtin_amdgcn_readfirstlane(ID / 32))
#define I (GROUP * 32 + LANE)  // this lane's element of the group's tile
// The input and the output have n elements, and n is not a multiple of the tile size.
#define LOAD(number) (FAULTY(number) || I < n ? in[I] : 0)
#define STORE(number, value)                  \
  do {                                        \
    if (FAULTY(number) || I < n) out[I] = (value); \
  } while (0)
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)

typedef local uint Counter;  // number of arrivals; a phase ends after a fixed number of them

// Initialise `count` counters. Fault `unset`: they are not initialised. Fault `unordered`: without a barrier.
#define SET_UP(counters, count, unset, unordered)      \
  do {                                                 \
    if (!FAULTY(unset) && ID < (count)) (counters)[ID] = 0; \
    if (!FAULTY(unordered)) SYNC();                    \
  } while (0)

// Signal once per wave that its accesses before are complete.
ZRT void arrive(Counter *counter) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  if (LANE == 0) __scoped_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

// Wait until the counter has `target` arrivals. Later accesses are ordered after those before the arrivals.
ZRT void wait_for(Counter *counter, uint target) {
  while (__scoped_atomic_load_n(counter, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP) < target)
    __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The same for waves of other workgroups.
ZRT void arrive_global(global uint *counter) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  if (LANE == 0) __scoped_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
ZRT void wait_global(global uint *counter, uint target) {
  while (__scoped_atomic_load_n(counter, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE) < target)
    __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
}
