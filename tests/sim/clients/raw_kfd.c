// A program on raw KFD ioctls that knows nothing of the simulated device: memory, a PM4 queue, a fence,
// USERPTR, threads, a fork, dup. Prints OK, or the line that failed.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)
static int kfd, drm;
static uint32_t gpu;

static long property(const char *name) {
  FILE *file = fopen("/sys/class/kfd/kfd/topology/nodes/1/properties", "r");
  char key[64];
  long value;
  NEED(file);
  while (fscanf(file, "%63s %ld", key, &value) == 2)
    if (!strcmp(key, name)) { fclose(file); return value; }
  NEED(!"property");
  return 0;
}

static void *memory(size_t size, uint32_t flags) {
  char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct { uint64_t va, size, handle, offset; uint32_t gpu, flags; } a = {(uint64_t)at, size, 0, 0, gpu, flags};
  NEED(!ioctl(kfd, 0xC0284B16, &a));
  if (flags & 3) NEED(mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, drm, a.offset) == at);
  struct { uint64_t handle, ids; uint32_t count, done; } m = {a.handle, (uint64_t)&gpu, 1, 0};
  NEED(!ioctl(kfd, 0xC0184B18, &m));
  NEED(m.done == 1);
  return at;
}

static void *user_pages(size_t size) {
  char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  at[5] = 77;
  struct { uint64_t va, size, handle, offset; uint32_t gpu, flags; } a = {(uint64_t)at, size, 0, (uint64_t)at, gpu, 0xC6000004};
  NEED(!ioctl(kfd, 0xC0284B16, &a));
  struct { uint64_t handle, ids; uint32_t count, done; } m = {a.handle, (uint64_t)&gpu, 1, 0};
  NEED(!ioctl(kfd, 0xC0184B18, &m));
  NEED(at[5] == 77);
  return at;
}

static void *versions(void *unused) {
  for (int i = 0; i < 50; i++) {
    uint32_t version[2] = {0};
    NEED(!ioctl(kfd, 0x80084B01, version) && version[0] == 1);
  }
  return unused;
}

int main(void) {
  struct stat about;
  NEED(!stat("/dev/kfd", &about) && S_ISCHR(about.st_mode));
  FILE *id = fopen("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "r");
  NEED(id && fscanf(id, "%u", &gpu) == 1);
  fclose(id);
  int first = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  NEED(first >= 0);
  kfd = dup(first);
  close(first);
  char path[64];
  snprintf(path, sizeof path, "/dev/dri/renderD%ld", property("drm_render_minor"));
  drm = open(path, O_RDWR | O_CLOEXEC);
  NEED(drm >= 0);
  struct { uint32_t drm, gpu; } acquire = {drm, gpu};
  NEED(!ioctl(kfd, 0x40084B15, &acquire));
  const uint32_t gtt = 2u | 0xC0000000u | 1u << 26 | 1u << 25, vram = 1u | 0xC0000000u;
  long cu = property("simd_count") / property("simd_per_cu"), waves = cu * 32;
  long group = (cu * (0x60000 + 0x4000 + 0x10000 + 0x1000) + 4095) & ~4095L, stack = (40 + waves * 12 + 8 + 4095) & ~4095L;
  long save = group + stack, area = (save + ((waves * 32 + 63) & ~63L) + 4095) & ~4095L;
  uint32_t *ring = memory(65536, gtt);
  uint64_t *rptr = memory(4096, gtt), *wptr = memory(4096, gtt);
  uint32_t *data = memory(4096, gtt), *user = user_pages(8192);
  struct {
    uint64_t ring, wptr, rptr, doorbell;
    uint32_t ring_size, gpu, type, percentage, priority, id;
    uint64_t eop, eop_size, save;
    uint32_t save_size, stack, sdma, pad;
  } q = {(uint64_t)ring, (uint64_t)wptr, (uint64_t)rptr, 0, 65536, gpu, 0, 100, 7, 0, (uint64_t)memory(4096, vram), 4096,
         (uint64_t)memory(area, gtt), save, stack, 0, 0};
  NEED(sizeof q == 96);
  NEED(!ioctl(kfd, 0xC0604B02, &q));
  char *bells = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, kfd, q.doorbell & ~0x1FFFull);
  NEED(bells != MAP_FAILED);
  uint32_t stream[] = {
      0xC0033700, 5u << 8 | 1u << 20, (uint32_t)(uint64_t)user, (uint32_t)((uint64_t)user >> 32), 1234,
      0xC0064900, 0x28 | 5u << 8, 2u << 29, (uint32_t)(uint64_t)data, (uint32_t)((uint64_t)data >> 32), 42, 0, 0,
  };
  memcpy(ring, stream, sizeof stream);
  __sync_synchronize();
  *wptr = sizeof stream / 4;
  __sync_synchronize();
  *(volatile uint64_t *)(bells + (q.doorbell & 0x1FFF)) = sizeof stream / 4;
  for (int i = 0; i < 5000 && *(volatile uint32_t *)data != 42; i++) usleep(1000);
  NEED(*(volatile uint32_t *)data == 42);
  NEED(*(volatile uint32_t *)user == 1234);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) NEED(!pthread_create(&threads[i], NULL, versions, NULL));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  pid_t child = fork();
  if (!child) {
    uint32_t version[2];
    int dead = ioctl(kfd, 0x80084B01, version), again = open("/dev/kfd", O_RDWR);
    _exit(dead < 0 && again >= 0 && !ioctl(again, 0x80084B01, version) ? 0 : 1);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child && !status);
  struct { uint32_t id, pad; } gone = {q.id, 0};
  NEED(!ioctl(kfd, 0xC0084B03, &gone));
  NEED(ioctl(kfd, 0xC0084B03, &gone) < 0 && errno == EINVAL);
  puts("OK");
  return 0;
}
