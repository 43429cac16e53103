// Allocations of HIP and of the HSA runtime: the device is told which bytes the program asked for, and where. Each is
// made larger by a red zone, which nobody may access; the runtimes align to pages, so nothing else is in it.
#include "preload.h"

#define RED_ZONE 4096
#define ALLOCATIONS 65536
#define SIGNAL_MEMORY 2u  // hipMallocSignalMemory: exactly 8 bytes

static __thread int inside;  // the HIP runtime allocates through the HSA runtime

static struct { void *address; size_t size; } made[ALLOCATIONS];  // what was asked for
static int made_end;
static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;

// The size that was asked for at an address; with `change`, it becomes `size`, and 0 forgets it.
static size_t size_at(void *address, int change, size_t size) {
  size_t found = 0;
  int slot = -1;
  pthread_mutex_lock(&made_lock);
  for (int i = 0; i < made_end; i++) {
    if (made[i].address == address) { found = made[i].size, slot = i; break; }
    if (!made[i].address && slot < 0) slot = i;
  }
  if (change && size && slot < 0 && made_end < ALLOCATIONS) slot = made_end++;
  if (change && slot >= 0 && (size || found)) made[slot].address = size ? address : NULL, made[slot].size = size;
  pthread_mutex_unlock(&made_lock);
  return found;
}

static void allocated(int call, void *address, size_t size) {
  char header[640], callers[300];
  size_at(address, 1, size);
  find_callers(callers, sizeof callers);
  snprintf(header, sizeof header, "{\"op\": \"allocated\", \"va\": %llu, \"size\": %zu, \"room\": %zu, \"name\": \"%s of %zu bytes%s%s\"}",
           (unsigned long long)(uintptr_t)address, size, size + RED_ZONE, runtime_calls[call].name, size,
           *callers ? " at " : "", callers);
  tell_device(header);
}

static void freed(void *address) {
  char header[128];
  if (!size_at(address, 1, 0)) return;
  snprintf(header, sizeof header, "{\"op\": \"freed\", \"va\": %llu}", (unsigned long long)(uintptr_t)address);
  tell_device(header);
}

#define ALLOCATE(call, type, address, size, arguments) \
  int bounded = !inside && (size) && (size) < SIZE_MAX / 2; \
  size_t asked = (size), extra = bounded ? RED_ZONE : 0; \
  inside++; \
  int failed = ((__typeof__(type) *)runtime_function(call)) arguments; \
  inside--; \
  if (!failed && bounded && *(address)) allocated(call, *(address), asked); \
  return failed

#define FREE(call, address) \
  if (!inside && (address)) freed(address); \
  inside++; \
  int failed = ((int (*)(void *))runtime_function(call))(address); \
  inside--; \
  return failed

int hipMalloc(void **address, size_t size) {
  ALLOCATE(HIP_MALLOC, int(void **, size_t), address, size, (address, asked + extra));
}
int hipExtMallocWithFlags(void **address, size_t size, unsigned flags) {
  if (flags & SIGNAL_MEMORY) return ((__typeof__(hipExtMallocWithFlags) *)runtime_function(HIP_EXT_MALLOC))(address, size, flags);
  ALLOCATE(HIP_EXT_MALLOC, int(void **, size_t, unsigned), address, size, (address, asked + extra, flags));
}
int hipFree(void *address) { FREE(HIP_FREE, address); }

int hsa_amd_memory_pool_allocate(uint64_t pool, size_t size, uint32_t flags, void **address) {
  ALLOCATE(POOL_ALLOCATE, int(uint64_t, size_t, uint32_t, void **), address, size, (pool, asked + extra, flags, address));
}
int hsa_amd_memory_pool_free(void *address) { FREE(POOL_FREE, address); }

int hsa_memory_allocate(uint64_t region, size_t size, void **address) {
  ALLOCATE(HSA_ALLOCATE, int(uint64_t, size_t, void **), address, size, (region, asked + extra, address));
}
int hsa_memory_free(void *address) { FREE(HSA_FREE, address); }

// What a program asks about its memory is what it asked for.
int hipMemGetAddressRange(void **base, size_t *size, void *address) {
  void *start = NULL;
  int failed = ((int (*)(void **, size_t *, void *))runtime_function(HIP_RANGE))(&start, size, address);
  if (base) *base = start;
  if (!failed && size && size_at(start, 0, 0)) *size = size_at(start, 0, 0);
  return failed;
}

struct pointer_info { uint32_t size, type; void *agent_base, *host_base; size_t bytes; };  // the start of hsa_amd_pointer_info_t

int hsa_amd_pointer_info(const void *address, struct pointer_info *info, void *(*allocate)(size_t), uint32_t *count, void **agents) {
  int failed = ((int (*)(const void *, struct pointer_info *, void *(*)(size_t), uint32_t *, void **))runtime_function(HSA_INFO))(
      address, info, allocate, count, agents);
  if (!failed && info && info->size >= sizeof *info && size_at(info->agent_base, 0, 0)) info->bytes = size_at(info->agent_base, 0, 0);
  return failed;
}
