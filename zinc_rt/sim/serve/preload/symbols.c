// Programs that look functions of the C library up (ctypes, dlopen), or make system calls by number: the same ones.
#include "preload.h"
#include <glob.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

typedef void *look_up(void *, const char *);

static look_up *real_look_up(void) {
  static look_up *found;
  if (!found) found = (look_up *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (!found) found = (look_up *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return found;
}

void *symbol_of(void *library, const char *name) { return real_look_up()(library, name); }
void *next_symbol(const char *name) { return symbol_of(RTLD_NEXT, name); }

#define ROW(name) {#name, (void *)name}
static const struct { const char *name; void *ours; } symbols[] = {
    ROW(open), ROW(open64), ROW(openat), ROW(openat64), ROW(close), ROW(dup), ROW(dup2), ROW(dup3), ROW(fcntl), ROW(fcntl64),
    ROW(ioctl), ROW(mmap), ROW(mmap64), ROW(munmap), ROW(mremap), ROW(read), ROW(write), ROW(fopen), ROW(fopen64), ROW(fclose),
    ROW(opendir), ROW(scandir), ROW(glob), ROW(access), ROW(readlink), ROW(realpath), ROW(stat), ROW(lstat), ROW(fstat),
    ROW(stat64), ROW(lstat64), ROW(fstat64), ROW(statx), ROW(chdir), ROW(sendmsg), ROW(syscall), ROW(close_range)};

#define CALL(call, name) [call] = {#name, (void *)name}
extern char hipMalloc[], hipExtMallocWithFlags[], hipFree[], hipMemGetAddressRange[], hsa_amd_memory_pool_allocate[],
    hsa_amd_memory_pool_free[], hsa_memory_allocate[], hsa_memory_free[], hsa_amd_pointer_info[],
    hsa_queue_add_write_index_relaxed[], hsa_queue_add_write_index_scacquire[], hsa_queue_add_write_index_screlease[],
    hsa_queue_add_write_index_scacq_screl[], hsa_queue_cas_write_index_relaxed[], hsa_queue_cas_write_index_scacquire[],
    hsa_queue_cas_write_index_screlease[], hsa_queue_cas_write_index_scacq_screl[], hsa_queue_store_write_index_relaxed[],
    hsa_queue_store_write_index_screlease[];
const struct runtime_call runtime_calls[RUNTIME_CALLS] = {
    CALL(HIP_MALLOC, hipMalloc), CALL(HIP_EXT_MALLOC, hipExtMallocWithFlags), CALL(HIP_FREE, hipFree),
    CALL(HIP_RANGE, hipMemGetAddressRange), CALL(POOL_ALLOCATE, hsa_amd_memory_pool_allocate),
    CALL(POOL_FREE, hsa_amd_memory_pool_free), CALL(HSA_ALLOCATE, hsa_memory_allocate), CALL(HSA_FREE, hsa_memory_free),
    CALL(HSA_INFO, hsa_amd_pointer_info), CALL(ADD_RELAXED, hsa_queue_add_write_index_relaxed),
    CALL(ADD_SCACQUIRE, hsa_queue_add_write_index_scacquire), CALL(ADD_SCRELEASE, hsa_queue_add_write_index_screlease),
    CALL(ADD_SCACQ_SCREL, hsa_queue_add_write_index_scacq_screl), CALL(CAS_RELAXED, hsa_queue_cas_write_index_relaxed),
    CALL(CAS_SCACQUIRE, hsa_queue_cas_write_index_scacquire), CALL(CAS_SCRELEASE, hsa_queue_cas_write_index_screlease),
    CALL(CAS_SCACQ_SCREL, hsa_queue_cas_write_index_scacq_screl), CALL(STORE_RELAXED, hsa_queue_store_write_index_relaxed),
    CALL(STORE_SCRELEASE, hsa_queue_store_write_index_screlease)};

void *dlsym(void *handle, const char *name) {
  if (handle == RTLD_NEXT) return real_look_up()(handle, name);  // as a jump: the caller's place decides what is next
  void *found = real_look_up()(handle, name);
  for (size_t i = 0; found && i < sizeof symbols / sizeof *symbols; i++)
    if (!strcmp(name, symbols[i].name)) return found == next_symbol(name) ? symbols[i].ours : found;
  return found ? find_runtime_replacement(name, found) : found;
}

long syscall(long call, ...) {
  va_list more; va_start(more, call);
  long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long), d = va_arg(more, long), e = va_arg(more, long), f = va_arg(more, long);
  va_end(more);
  switch (call) {
    case SYS_openat: return openat(a, (const char *)b, c, d);
    case SYS_close: return close(a);
    case SYS_ioctl: return ioctl(a, b, (void *)c);
    case SYS_mmap: return (long)mmap((void *)a, b, c, d, e, f);
    case SYS_munmap: return munmap((void *)a, b);
    case SYS_dup: return dup(a);
    case SYS_dup3: return dup3(a, b, c);
    case SYS_close_range: return close_range(a, b, c);
    case SYS_statx: return statx(a, (const char *)b, c, d, (struct statx *)e);
    default: return REAL(syscall)(call, a, b, c, d, e, f);
  }
}
