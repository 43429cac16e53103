// A small runtime on raw ioctls of /dev/kfd: memory, queues, events. Numbers and structs: include/uapi/linux/kfd_ioctl.h.
//
// Whatever a scenario opens is closed behind it (leave_nothing). A call that fails ends the scenario with a sentence.
#pragma once
#include <stdint.h>
#include <stddef.h>

#define KFD_GET_CLOCK_COUNTERS 0xC0284B05ul
#define KFD_CREATE_QUEUE 0xC0604B02ul
#define KFD_DESTROY_QUEUE 0xC0084B03ul
#define KFD_UPDATE_QUEUE 0x40184B07ul
#define KFD_CREATE_EVENT 0xC0204B08ul
#define KFD_DESTROY_EVENT 0x40084B09ul
#define KFD_WAIT_EVENTS 0xC0184B0Cul
#define KFD_ACQUIRE_VM 0x40084B15ul
#define KFD_ALLOC_MEMORY 0xC0284B16ul
#define KFD_FREE_MEMORY 0x40084B17ul
#define KFD_MAP_MEMORY 0xC0184B18ul
#define KFD_UNMAP_MEMORY 0xC0184B19ul
#define KFD_SET_CU_MASK 0x40104B1Aul
#define KFD_IMPORT_DMABUF 0xC0184B1Dul
#define KFD_EXPORT_DMABUF 0xC0104B24ul
#define KFD_RUNTIME_ENABLE 0xC0104B25ul

enum heap { GTT, CODE, VRAM, PRIVATE_VRAM, USER_PAGES, DOORBELLS };
enum protocol { PM4, SDMA, AQL };  // and the queue's type in CREATE_QUEUE

struct memory {
  char *at;  // also the GPU's address; NULL for the host in PRIVATE_VRAM
  uint64_t va, size, handle;
  struct memory *next;
};

struct queue {
  enum protocol protocol;
  uint32_t id, ring_size;
  struct memory *ring, *pointers, *save_area;
  struct memory *arguments, *code;  // AQL: 1024 blocks of 64 bytes; the image of kernels.h, once a kernel is named
  volatile uint64_t *rptr, *wptr, *doorbell;
  uint64_t written;    // dwords, or packets of AQL
  uint32_t doorbell_index;  // 64-bit slots of the process's doorbell page
  uint32_t priority, percentage;
  struct queue *next;
};

struct event { uint32_t id, slot, trigger; };

// --- the device
void device_open(void);          // at the first call; later ones do nothing
long property(const char *name); // of the GPU's topology node
int kfd_call(unsigned long request, void *argument);   // 0 or an errno
void kfd(unsigned long request, void *argument, const char *what);  // ends the scenario where it fails
uint32_t gpu_id(void);
void leave_nothing(void);

// --- memory: zeroed by the kernel, mapped to the GPU
struct memory *allocate(enum heap heap, uint64_t size);
void release(struct memory *memory);
void unmap_from_gpu(struct memory *memory);
void map_to_gpu(struct memory *memory);
static inline uint64_t va(const struct memory *memory, uint64_t offset) { return memory->va + offset; }
static inline volatile uint32_t *words(const struct memory *memory) { return (volatile uint32_t *)memory->at; }
static inline volatile uint64_t *longs(const struct memory *memory) { return (volatile uint64_t *)memory->at; }

// --- queues
struct queue *queue_open(enum protocol protocol, uint32_t ring_size, uint32_t priority);
void queue_close(struct queue *queue);
void queue_update(struct queue *queue, uint32_t percentage, uint32_t priority);
void queue_cu_mask(struct queue *queue, const uint32_t *mask, uint32_t bits);
void queue_start_at(struct queue *queue, uint64_t dwords);  // of a PM4 queue that has run nothing
void submit(struct queue *queue, const uint32_t *stream, uint32_t dwords);  // waits for room
uint64_t reserve(struct queue *queue, uint32_t packets);    // AQL: the index of the first; waits for room
void publish(struct queue *queue, uint64_t index, const void *packet);      // body first, then its header
void ring(struct queue *queue, uint64_t index);             // AQL: the doorbell, with a packet's index
void send(struct queue *queue, const void *packet);         // AQL: reserve, publish, ring
void drain(struct queue *queue);                            // until everything was fetched; AQL: is over
uint64_t error_reason(struct queue *queue);                 // bit (code - 1) of each exception that ended the queue

// --- events
struct event event_open(void);
void event_close(struct event event);
uint64_t event_mailbox(struct event event);  // where a fence writes its trigger
int events_wait(const struct event *events, uint32_t count, uint32_t timeout_ms);  // 1: all came, 0: time is over

// --- the host waits; both fail after patience_ns
extern uint64_t patience_ns;
void wait32(volatile uint32_t *word, uint32_t value, const char *what);
void wait64(volatile uint64_t *word, uint64_t value, const char *what);
uint64_t now_ns(void);
