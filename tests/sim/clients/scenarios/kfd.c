#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "scenario.h"

#define PAGE 4096ull
#define DOORBELL_BYTES 8192
#define NODE "/sys/class/kfd/kfd/topology/nodes"
#define VRAM_FLAG 1u
#define GTT_FLAG 2u
#define USERPTR_FLAG 4u
#define DOORBELL_FLAG 8u
#define UNCACHED_FLAG (1u << 25)
#define COHERENT_FLAG (1u << 26)
#define PUBLIC_FLAG (1u << 29)
#define EXECUTABLE_FLAG (1u << 30)
#define WRITABLE_FLAG (1u << 31)
#define EVENT_SLOTS 4096
#define AQL_PACKET 64u
#define AQL_INVALID 1u
#define AQL_AND_SYSTEM (3u | 1u << 8 | 2u << 9 | 2u << 11)
// amd_queue_t (ROCr's amd_hsa_queue.h)
#define QUEUE_WRITE_INDEX 0x38
#define QUEUE_READ_INDEX 0x80
#define QUEUE_READ_INDEX_OFFSET 0x88
#define QUEUE_PROPERTIES 0xB4
#define PTR64 2u
#define ERROR_REASON 512   // in the same page, where nothing of amd_queue_t lies
#define DRAIN_SIGNAL 3072

uint64_t patience_ns = 10000000000ull;
static int kfd_fd = -1, drm_fd = -1, node;
static uint32_t gpu;
static struct memory *memories, *event_page;
static struct queue *queues;
static volatile uint64_t *doorbells;
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void patient(uint64_t end, const char *what) {
  CHECK(now_ns() < end, "waited too long for %s", what);
  nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

void wait32(volatile uint32_t *word, uint32_t value, const char *what) {
  for (uint64_t end = now_ns() + patience_ns; *word != value;) patient(end, what);
  __sync_synchronize();
}

void wait64(volatile uint64_t *word, uint64_t value, const char *what) {
  for (uint64_t end = now_ns() + patience_ns; *word != value;) patient(end, what);
  __sync_synchronize();
}

// --- the device

static long node_file(int number, const char *file, const char *name) {
  char path[128], key[64];
  long value = -1;
  snprintf(path, sizeof path, NODE "/%d/%s", number, file);
  FILE *open_file = fopen(path, "r");
  if (!open_file) return -1;
  if (!name) value = fscanf(open_file, "%ld", &value) == 1 ? value : -1;
  else for (long each; fscanf(open_file, "%63s %ld", key, &each) == 2;) if (!strcmp(key, name)) value = each;
  fclose(open_file);
  return value;
}

long property(const char *name) {
  long value = node_file(node, "properties", name);
  CHECK(value >= 0, "no property %s", name);
  return value;
}

uint32_t gpu_id(void) { return gpu; }

int kfd_call(unsigned long request, void *argument) { return ioctl(kfd_fd, request, argument) ? errno : 0; }

void kfd(unsigned long request, void *argument, const char *what) {
  int error = kfd_call(request, argument);
  CHECK(!error, "%s: %s", what, strerror(error));
}

void device_open(void) {
  if (kfd_fd >= 0) return;
  for (node = 0; node < 32 && node_file(node, "properties", "gfx_target_version") / 10000 != 12;) node++;
  CHECK(node < 32, "no gfx12 GPU below " NODE);
  gpu = node_file(node, "gpu_id", NULL);
  char path[64];
  snprintf(path, sizeof path, "/dev/dri/renderD%ld", property("drm_render_minor"));
  drm_fd = open(path, O_RDWR | O_CLOEXEC);
  CHECK(drm_fd >= 0, "%s: %s", path, strerror(errno));
  kfd_fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  CHECK(kfd_fd >= 0, "/dev/kfd: %s", strerror(errno));
  struct { uint32_t drm, gpu; } acquire = {drm_fd, gpu};
  kfd(KFD_ACQUIRE_VM, &acquire, "ACQUIRE_VM");
  struct { uint64_t debug; uint32_t mode, capabilities; } enable = {0, 1, 0};
  kfd(KFD_RUNTIME_ENABLE, &enable, "RUNTIME_ENABLE");  // exceptions are told from now on
}

// --- memory

static const uint32_t heap_flags[] = {
    [GTT] = GTT_FLAG | WRITABLE_FLAG | COHERENT_FLAG | UNCACHED_FLAG,
    [CODE] = GTT_FLAG | WRITABLE_FLAG | EXECUTABLE_FLAG | COHERENT_FLAG | UNCACHED_FLAG,
    [VRAM] = VRAM_FLAG | WRITABLE_FLAG | EXECUTABLE_FLAG | PUBLIC_FLAG,
    [PRIVATE_VRAM] = VRAM_FLAG | WRITABLE_FLAG,
    [USER_PAGES] = USERPTR_FLAG | WRITABLE_FLAG | COHERENT_FLAG,
    [DOORBELLS] = DOORBELL_FLAG | WRITABLE_FLAG | COHERENT_FLAG,
};

void map_to_gpu(struct memory *memory) {
  struct { uint64_t handle, ids; uint32_t count, done; } map = {memory->handle, (uint64_t)&gpu, 1, 0};
  kfd(KFD_MAP_MEMORY, &map, "MAP_MEMORY_TO_GPU");
  CHECK(map.done == 1, "MAP_MEMORY_TO_GPU mapped nothing");
}

void unmap_from_gpu(struct memory *memory) {
  struct { uint64_t handle, ids; uint32_t count, done; } map = {memory->handle, (uint64_t)&gpu, 1, 0};
  kfd(KFD_UNMAP_MEMORY, &map, "UNMAP_MEMORY_FROM_GPU");
  CHECK(map.done == 1, "UNMAP_MEMORY_FROM_GPU unmapped nothing");
}

struct memory *allocate(enum heap heap, uint64_t size) {
  struct memory *made = calloc(1, sizeof *made);
  made->size = (size + PAGE - 1) & -PAGE;
  int access = heap == USER_PAGES ? PROT_READ | PROT_WRITE : PROT_NONE;
  char *at = mmap(NULL, made->size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED, "no address range of %llu bytes", (unsigned long long)made->size);
  struct { uint64_t va, size, handle, offset; uint32_t gpu, flags; } ask = {
      (uint64_t)at, made->size, 0, heap == USER_PAGES ? (uint64_t)at : 0, gpu, heap_flags[heap]};
  kfd(KFD_ALLOC_MEMORY, &ask, "ALLOC_MEMORY_OF_GPU");
  made->va = (uint64_t)at, made->handle = ask.handle, made->at = at;
  if (heap == GTT || heap == CODE || heap == VRAM) {
    CHECK(mmap(at, made->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, drm_fd, ask.offset) == at, "mmap of a buffer");
  }
  pthread_mutex_lock(&lists);
  made->next = memories, memories = made;
  pthread_mutex_unlock(&lists);
  map_to_gpu(made);
  return made;
}

void release(struct memory *memory) {
  pthread_mutex_lock(&lists);
  for (struct memory **at = &memories; *at; at = &(*at)->next)
    if (*at == memory) { *at = memory->next; break; }
  pthread_mutex_unlock(&lists);
  unmap_from_gpu(memory);
  kfd(KFD_FREE_MEMORY, &memory->handle, "FREE_MEMORY_OF_GPU");
  munmap((void *)memory->va, memory->size);
  free(memory);
}

// --- queues

static void save_area_sizes(uint32_t *stack, uint32_t *save, uint64_t *whole) {
  uint64_t cus = property("simd_count") / property("simd_per_cu"), waves = cus * 32;
  *stack = (40 + waves * 12 + 8 + PAGE - 1) & -PAGE;  // kfd_queue_ctx_save_restore_size of kfd_queue.c
  *save = *stack + ((cus * (0x60000 + 0x4000 + 0x10000 + 0x1000) + PAGE - 1) & -PAGE);
  *whole = (*save + ((waves * 32 + 63) & ~63ull) + PAGE - 1) & -PAGE;
}

// amd_queue_t and a ring without packets.
static void aql_queue(struct queue *queue) {
  volatile uint32_t *about = words(queue->pointers);
  about[0] = 1, about[1] = 1;  // one producer; kernel dispatches
  longs(queue->pointers)[1] = queue->ring->va, about[6] = queue->ring_size / AQL_PACKET;
  about[18] = property("simd_count") / property("simd_per_cu") - 1;
  about[19] = property("max_waves_per_simd") * property("simd_per_cu") - 1;
  about[QUEUE_READ_INDEX_OFFSET / 4] = QUEUE_READ_INDEX;
  about[QUEUE_PROPERTIES / 4] = PTR64;
  for (uint32_t at = 0; at < queue->ring_size; at += AQL_PACKET) words(queue->ring)[at / 4] = AQL_INVALID;
  queue->arguments = allocate(GTT, 1024 * 64);
}

struct queue *queue_open(enum protocol protocol, uint32_t ring_size, uint32_t priority) {
  struct queue *queue = calloc(1, sizeof *queue);
  struct {
    uint64_t ring, wptr, rptr, doorbell;
    uint32_t ring_size, gpu, type, percentage, priority, id;
    uint64_t eop, eop_size, save;
    uint32_t save_size, stack, engine, pad;
  } ask = {.ring_size = ring_size, .gpu = gpu, .type = protocol, .percentage = 100, .priority = priority};
  queue->protocol = protocol, queue->ring_size = ring_size, queue->percentage = 100, queue->priority = priority;
  queue->ring = allocate(CODE, ring_size);
  queue->pointers = allocate(GTT, PAGE);
  uint32_t write_at = QUEUE_WRITE_INDEX, read_at = QUEUE_READ_INDEX;
  ask.ring = queue->ring->va, ask.wptr = queue->pointers->va + write_at, ask.rptr = queue->pointers->va + read_at;
  queue->wptr = (volatile uint64_t *)(queue->pointers->at + write_at);
  queue->rptr = (volatile uint64_t *)(queue->pointers->at + read_at);
  if (protocol == AQL) aql_queue(queue);
  if (protocol != SDMA) {
    uint64_t whole;
    save_area_sizes(&ask.stack, &ask.save_size, &whole);
    queue->save_area = allocate(GTT, whole);
    words(queue->save_area)[4] = ask.save_size, words(queue->save_area)[5] = whole - ask.save_size;  // for debuggers
    longs(queue->save_area)[3] = va(queue->pointers, ERROR_REASON);
    ask.save = queue->save_area->va, ask.eop = allocate(GTT, PAGE)->va, ask.eop_size = PAGE;
  }
  kfd(KFD_CREATE_QUEUE, &ask, "CREATE_QUEUE");
  queue->id = ask.id;
  pthread_mutex_lock(&lists);
  if (!doorbells) {
    void *made = mmap(NULL, DOORBELL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, kfd_fd, ask.doorbell & -(uint64_t)DOORBELL_BYTES);
    doorbells = made == MAP_FAILED ? NULL : made;
  }
  queue->next = queues, queues = queue;
  pthread_mutex_unlock(&lists);
  CHECK(doorbells, "doorbells: %s", strerror(errno));
  queue->doorbell_index = ask.doorbell % DOORBELL_BYTES / 8;
  queue->doorbell = doorbells + queue->doorbell_index;
  return queue;
}

void queue_close(struct queue *queue) {
  struct { uint32_t id, pad; } ask = {queue->id, 0};
  pthread_mutex_lock(&lists);
  for (struct queue **at = &queues; *at; at = &(*at)->next)
    if (*at == queue) { *at = queue->next; break; }
  pthread_mutex_unlock(&lists);
  kfd(KFD_DESTROY_QUEUE, &ask, "DESTROY_QUEUE");
  free(queue);
}

void queue_update(struct queue *queue, uint32_t percentage, uint32_t priority) {
  struct { uint64_t ring; uint32_t id, ring_size, percentage, priority; } ask = {queue->ring->va, queue->id, queue->ring_size,
                                                                                 percentage, priority};
  kfd(KFD_UPDATE_QUEUE, &ask, "UPDATE_QUEUE");
  queue->percentage = percentage, queue->priority = priority;
}

void queue_cu_mask(struct queue *queue, const uint32_t *mask, uint32_t bits) {
  struct { uint32_t id, bits; uint64_t mask; } ask = {queue->id, bits, (uint64_t)mask};
  kfd(KFD_SET_CU_MASK, &ask, "SET_CU_MASK");
}

static void announce(struct queue *queue, uint64_t doorbell) {
  __sync_synchronize();
  *queue->wptr = queue->protocol == SDMA ? queue->written * 4 : queue->written;
  __sync_synchronize();
  *queue->doorbell = doorbell;
}

static uint64_t unread(struct queue *queue) {
  switch (queue->protocol) {
    case AQL: return queue->written - *queue->rptr;
    case SDMA: return queue->written - *queue->rptr / 4;
    default: return (queue->written - *(volatile uint32_t *)queue->rptr) & (queue->ring_size / 4 - 1);
  }
}

void queue_start_at(struct queue *queue, uint64_t dwords) {
  CHECK(dwords % (queue->ring_size / 4) == 0 && !queue->written, "only whole rings, and of an unused queue");
  *queue->wptr = queue->written = dwords;
}

void submit(struct queue *queue, const uint32_t *stream, uint32_t dwords) {
  uint32_t room = queue->ring_size / 4;
  CHECK(dwords < room, "%u dwords for a ring of %u", dwords, room);
  for (uint64_t end = now_ns() + patience_ns; unread(queue) + dwords >= room;) patient(end, "room in the ring");
  for (uint32_t i = 0; i < dwords; i++) words(queue->ring)[(queue->written + i) & (room - 1)] = stream[i];
  queue->written += dwords;
  announce(queue, queue->protocol == SDMA ? queue->written * 4 : queue->written);
}

uint64_t error_reason(struct queue *queue) { return longs(queue->pointers)[ERROR_REASON / 8]; }

// The read index of an AQL queue may lag behind: a barrier packet says that everything before it is over.
static void drain_aql(struct queue *queue) {
  volatile uint64_t *signal = longs(queue->pointers) + DRAIN_SIGNAL / 8;
  uint64_t barrier[8] = {AQL_AND_SYSTEM, 0, 0, 0, 0, 0, 0, va(queue->pointers, DRAIN_SIGNAL)};
  signal[0] = 1, signal[1] = 1;
  send(queue, barrier);
  wait64(signal + 1, 0, "a barrier behind everything");
}

void drain(struct queue *queue) {
  if (queue->protocol == AQL) { drain_aql(queue); return; }
  for (uint64_t end = now_ns() + patience_ns; unread(queue);) patient(end, "the read pointer at the write pointer");
}

uint64_t reserve(struct queue *queue, uint32_t packets) {
  uint32_t room = queue->ring_size / AQL_PACKET;
  for (uint64_t end = now_ns() + patience_ns; unread(queue) + packets > room;) patient(end, "room in the ring");
  uint64_t first = queue->written;
  queue->written += packets;
  *queue->wptr = queue->written;
  return first;
}

void publish(struct queue *queue, uint64_t index, const void *packet) {
  char *slot = queue->ring->at + index % (queue->ring_size / AQL_PACKET) * AQL_PACKET;
  uint32_t header;
  memcpy(&header, packet, 4);
  memcpy(slot + 4, (const char *)packet + 4, AQL_PACKET - 4);
  __atomic_store_n((uint32_t *)slot, header, __ATOMIC_RELEASE);
}

void ring(struct queue *queue, uint64_t index) {
  __sync_synchronize();
  *queue->doorbell = index;
}

void send(struct queue *queue, const void *packet) {
  uint64_t index = reserve(queue, 1);
  publish(queue, index, packet);
  ring(queue, index);
}

// --- events

struct event event_open(void) {
  struct { uint64_t page; uint32_t trigger, type, auto_reset, node, id, slot; } ask = {0, 0, 0, 1, 0, 0, 0};
  struct memory *page = event_page ? NULL : allocate(GTT, EVENT_SLOTS * 8);
  if (page) ask.page = page->handle;
  kfd(KFD_CREATE_EVENT, &ask, "CREATE_EVENT");
  if (page) event_page = page, memories = page->next;  // it stays the process's: KFD frees it with the process
  CHECK(ask.slot < EVENT_SLOTS, "event slot %u", ask.slot);
  return (struct event){ask.id, ask.slot, ask.trigger};
}

uint64_t event_mailbox(struct event event) { return va(event_page, event.slot * 8); }

void event_close(struct event event) {
  struct { uint32_t id, pad; } ask = {event.id, 0};
  kfd(KFD_DESTROY_EVENT, &ask, "DESTROY_EVENT");
}

int events_wait(const struct event *events, uint32_t count, uint32_t timeout_ms) {
  struct { uint64_t age, unused[4]; uint32_t id, pad; } data[EVENT_SLOTS] = {0};
  CHECK(count <= EVENT_SLOTS, "%u events", count);
  for (uint32_t i = 0; i < count; i++) data[i].id = events[i].id;
  struct { uint64_t data; uint32_t count, all, timeout, result; } ask = {(uint64_t)data, count, timeout_ms != 0, timeout_ms, 9};
  kfd(KFD_WAIT_EVENTS, &ask, "WAIT_EVENTS");
  CHECK(ask.result <= 1, "WAIT_EVENTS gives %u", ask.result);
  return ask.result == 0;
}

void leave_nothing(void) {
  while (queues) queue_close(queues);
  while (memories) release(memories);
}
