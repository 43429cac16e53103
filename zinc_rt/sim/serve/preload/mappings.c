// mmap and munmap of device files: memory of the device's process; USERPTR: pages of this one that the device shares.
#include "preload.h"

#define MAPS 16384
#define PAGE 4096ull

struct span { uintptr_t from, to; long long id; };
static struct span maps[MAPS];
static int maps_end;  // no map from here on
static struct { uintptr_t from, to; int fd; } shared[MAPS];
static int shared_end;

void maps_begin_anew(void) {
  for (int i = 0; i < shared_end; i++)
    if (shared[i].to) REAL(close)(shared[i].fd);
  maps_end = shared_end = 0;
  memset(maps, 0, sizeof maps), memset(shared, 0, sizeof shared);
}

static void remember(uintptr_t from, uintptr_t to, long long id) {  // with state_lock held
  int slot = 0;
  while (slot < maps_end && maps[slot].to) slot++;
  if (slot == MAPS) { refuse("more than 16384 mappings of device files"); return; }
  maps[slot] = (struct span){from, to, id};
  if (slot == maps_end) maps_end++;
}

// Cuts [from, to) out of what is mapped. The id of a mapping of which nothing is left, or -1 where there is none (more).
static long long cut(uintptr_t from, uintptr_t to) {
  for (int i = 0; i < maps_end; i++) {
    struct span was = maps[i];
    if (!was.to || was.to <= from || to <= was.from) continue;
    maps[i].to = 0;
    if (was.from < from) remember(was.from, from, was.id);
    if (to < was.to) remember(to, was.to, was.id);
    int left = 0;
    for (int other = 0; other < maps_end; other++) left |= maps[other].to && maps[other].id == was.id;
    if (!left) return was.id;
  }
  return -1;
}

static void unmapped(void *address, size_t size) {
  if (!own_process() || (!maps_end && !shared_end)) return;
  uintptr_t from = (uintptr_t)address, to = from + ((size + PAGE - 1) & ~(PAGE - 1));
  for (;;) {
    pthread_mutex_lock(&state_lock);
    long long id = cut(from, to);
    for (int i = 0; i < shared_end; i++)
      if (shared[i].to && shared[i].from < to && from < shared[i].to) REAL(close)(shared[i].fd), shared[i].to = 0;
    pthread_mutex_unlock(&state_lock);
    if (id < 0) return;
    char header[64];
    struct answer answer;
    snprintf(header, sizeof header, "{\"op\": \"munmap\", \"mapping\": %lld}", id);
    struct request request = {header, NULL, 0, 0, -1};
    int before = errno;
    ask(&request, &answer);
    errno = before;
  }
}

static void *map_device(void *address, size_t size, int access, int flags, int theirs, long long offset) {
  if (theirs == DEAD) { errno = EBADF; return MAP_FAILED; }
  if ((flags & MAP_TYPE) == MAP_PRIVATE && access) { errno = EINVAL; return MAP_FAILED; }  // ttm_bo_mmap_obj: no copy on write
  char header[256];
  struct answer answer;
  snprintf(header, sizeof header, "{\"op\": \"mmap\", \"fd\": %d, \"size\": %zu, \"offset\": %llu}", theirs, size, (unsigned long long)offset);
  struct request request = {header, NULL, 0, 0, -1};
  if (ask(&request, &answer)) return MAP_FAILED;
  void *made = REAL(mmap)(address, size, access, (flags & ~MAP_TYPE) | MAP_SHARED, answer.came, number(&answer, "\"offset\": "));
  int failed = errno;
  REAL(close)(answer.came);
  long long id = number(&answer, "\"mapping\": ");
  if (made == MAP_FAILED) {
    snprintf(header, sizeof header, "{\"op\": \"munmap\", \"mapping\": %lld}", id);
    ask(&request, &answer);
    errno = failed;
    return made;
  }
  unmapped(made, size);  // MAP_FIXED over another one
  pthread_mutex_lock(&state_lock);
  remember((uintptr_t)made, (uintptr_t)made + ((size + PAGE - 1) & ~(PAGE - 1)), id);
  pthread_mutex_unlock(&state_lock);
  return made;
}

#define MAPS_FILES(name, offset_type) \
  void *name(void *address, size_t size, int access, int flags, int fd, offset_type offset) { \
    int theirs = flags & MAP_ANONYMOUS ? NOT_OURS : device(fd); \
    if (theirs != NOT_OURS) return map_device(address, size, access, flags, theirs, offset); \
    void *made = REAL(name)(address, size, access, flags, fd, offset); \
    if (made != MAP_FAILED && flags & MAP_FIXED) unmapped(made, size); \
    return made; \
  }
MAPS_FILES(mmap, off_t)
MAPS_FILES(mmap64, off64_t)

int munmap(void *address, size_t size) {
  int done = REAL(munmap)(address, size);
  if (!done) unmapped(address, size);
  return done;
}

void *mremap(void *address, size_t size, size_t wanted, int flags, ...) {
  va_list more; va_start(more, flags); void *to = va_arg(more, void *); va_end(more);
  uintptr_t from = (uintptr_t)address;
  for (int i = 0; own_process() && i < maps_end; i++)
    if (maps[i].to && maps[i].from < from + size && from < maps[i].to) {
      refuse("mremap() of a device file's mapping");
      errno = EFAULT;  // the kernel's for growing one (VM_DONTEXPAND)
      return MAP_FAILED;
    }
  return REAL(mremap)(address, size, wanted, flags, to);
}

// The whole pages around [address, address + size) become a memfd, in place; `offset`: where they begin in it.
// -1: they cannot, and the device says what the kernel would.
int share_pages(uint64_t address, uint64_t size, uint64_t *start, uint64_t *length, uint64_t *offset) {
  uint64_t from = address & ~(PAGE - 1), to = (address + size + PAGE - 1) & ~(PAGE - 1);
  if (!size || to <= from) return -1;
  *start = from, *length = to - from, *offset = 0;
  int slot = 0;
  for (int i = 0; i < shared_end; i++) {
    if (!shared[i].to || to <= shared[i].from || shared[i].to <= from) continue;
    if (shared[i].from <= from && to <= shared[i].to) {  // shared before: the same memory
      *offset = from - shared[i].from;
      return REAL(fcntl)(shared[i].fd, F_DUPFD_CLOEXEC, 0);
    }
    refuse("USERPTR of pages that are in part another buffer's");
    return -1;
  }
  int fd = memfd_create("zinc-rt user pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  for (uint64_t done = 0; fd >= 0 && done < to - from;) {
    ssize_t put = pwrite(fd, (char *)(uintptr_t)from + done, to - from - done, done);
    if (put <= 0) { REAL(close)(fd); return -1; }
    done += put;
  }
  if (fd < 0 || REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ||
      REAL(mmap)((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    REAL(close)(fd);
    return -1;
  }
  pthread_mutex_lock(&state_lock);
  while (slot < shared_end && shared[slot].to) slot++;
  int keep = slot < MAPS ? REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 512) : -1;
  if (keep >= 0) {
    shared[slot].from = from, shared[slot].to = to, shared[slot].fd = keep;
    if (slot == shared_end) shared_end++;
  }
  pthread_mutex_unlock(&state_lock);
  return fd;
}
