// Allocations of HIP and of the HSA runtime: the device is told which bytes the program asked for, and where. Each is
// made larger by a red zone, which nobody may access; the runtimes align to pages, so nothing else is in it.
#include "preload.h"
#include <execinfo.h>

#define RED_ZONE 4096
#define FRAMES 12
#define ALLOCATIONS 65536

static __thread int inside;  // the HIP runtime allocates through the HSA runtime

enum { HIP_MALLOC, HIP_EXT_MALLOC, HIP_FREE, HIP_RANGE, POOL_ALLOCATE, POOL_FREE, HSA_ALLOCATE, HSA_FREE, HSA_INFO, CALLS };
static const char *const names[CALLS] = {"hipMalloc", "hipExtMallocWithFlags", "hipFree", "hipMemGetAddressRange",
                                         "hsa_amd_memory_pool_allocate", "hsa_amd_memory_pool_free", "hsa_memory_allocate",
                                         "hsa_memory_free", "hsa_amd_pointer_info"};

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
static void *looked_up[CALLS];  // by dlsym of a library that is not in the global scope

static const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libhsa-runtime64.so.1"};

static void *real(int call) {
  if (!looked_up[call]) looked_up[call] = next_symbol(names[call]);
  for (size_t i = 0; !looked_up[call] && i < sizeof libraries / sizeof *libraries; i++) {
    void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);  // loaded by a plug-in, so in no global scope
    if (library) looked_up[call] = symbol_of(library, names[call]);
  }
  return looked_up[call];
}

// Writes "a.out+0x1234 (main+0x56)" for the first frame outside of this library and of the two runtimes.
static void find_caller(char *text, size_t size) {
  void *frames[FRAMES];
  int count = backtrace(frames, FRAMES);
  *text = 0;
  for (int i = 2; i < count; i++) {
    Dl_info about;
    if (!dladdr(frames[i], &about) || !about.dli_fname) continue;
    const char *file = strrchr(about.dli_fname, '/') ? strrchr(about.dli_fname, '/') + 1 : about.dli_fname;
    if (strstr(file, "libamdhip64") || strstr(file, "libhsa-runtime64")) continue;
    int end = snprintf(text, size, " at %.60s+0x%lx", file, (unsigned long)((char *)frames[i] - (char *)about.dli_fbase));
    if (about.dli_sname && end > 0 && (size_t)end < size)
      snprintf(text + end, size - end, " (%.60s+0x%lx)", about.dli_sname, (unsigned long)((char *)frames[i] - (char *)about.dli_saddr));
    break;
  }
  for (char *c = text; *c; c++)
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '?';
}

static void tell(const char *header) {
  struct answer answer;
  struct request request = {header, NULL, 0, 0, -1};
  int before = errno;
  if (own_process()) ask(&request, &answer);
  errno = before;
}

static void allocated(int call, void *address, size_t size) {
  char header[512], caller[200];
  size_at(address, 1, size);
  find_caller(caller, sizeof caller);
  snprintf(header, sizeof header, "{\"op\": \"allocated\", \"va\": %llu, \"size\": %zu, \"room\": %zu, \"name\": \"%s of %zu bytes%s\"}",
           (unsigned long long)(uintptr_t)address, size, size + RED_ZONE, names[call], size, caller);
  tell(header);
}

static void freed(void *address) {
  char header[128];
  if (!size_at(address, 1, 0)) return;
  snprintf(header, sizeof header, "{\"op\": \"freed\", \"va\": %llu}", (unsigned long long)(uintptr_t)address);
  tell(header);
}

#define ALLOCATE(call, type, address, size, arguments) \
  int bounded = !inside && (size) && (size) < SIZE_MAX / 2; \
  size_t asked = (size), extra = bounded ? RED_ZONE : 0; \
  inside++; \
  int failed = ((__typeof__(type) *)real(call)) arguments; \
  inside--; \
  if (!failed && bounded && *(address)) allocated(call, *(address), asked); \
  return failed

#define FREE(call, address) \
  if (!inside && (address)) freed(address); \
  inside++; \
  int failed = ((int (*)(void *))real(call))(address); \
  inside--; \
  return failed

int hipMalloc(void **address, size_t size) {
  ALLOCATE(HIP_MALLOC, int(void **, size_t), address, size, (address, asked + extra));
}
int hipExtMallocWithFlags(void **address, size_t size, unsigned flags) {
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
  int failed = ((int (*)(void **, size_t *, void *))real(HIP_RANGE))(&start, size, address);
  if (base) *base = start;
  if (!failed && size && size_at(start, 0, 0)) *size = size_at(start, 0, 0);
  return failed;
}

struct pointer_info { uint32_t size, type; void *agent_base, *host_base; size_t bytes; };  // the start of hsa_amd_pointer_info_t

int hsa_amd_pointer_info(const void *address, struct pointer_info *info, void *(*allocate)(size_t), uint32_t *count, void **agents) {
  int failed = ((int (*)(const void *, struct pointer_info *, void *(*)(size_t), uint32_t *, void **))real(HSA_INFO))(
      address, info, allocate, count, agents);
  if (!failed && info && info->size >= sizeof *info && size_at(info->agent_base, 0, 0)) info->bytes = size_at(info->agent_base, 0, 0);
  return failed;
}

void *find_allocator(const char *name, void *found) {
  void *const ours[CALLS] = {hipMalloc, hipExtMallocWithFlags, hipFree, hipMemGetAddressRange, hsa_amd_memory_pool_allocate,
                             hsa_amd_memory_pool_free, hsa_memory_allocate, hsa_memory_free, hsa_amd_pointer_info};
  for (int i = 0; i < CALLS; i++)
    if (!strcmp(name, names[i])) {
      if (found != ours[i]) looked_up[i] = found;
      return ours[i];
    }
  return found;
}
