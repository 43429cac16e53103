// Behaviour of the driver that kfdtest checks too: fresh memory, user pages registered twice, queues without a ring, all
// events at once, POSIX signals during calls.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "work.h"

#define RING 8192
#define WORDS 16

static void write_and_wait(struct queue *queue, uint64_t to, uint32_t value, struct memory *done, uint32_t round) {
  struct stream s = {0};
  if (queue->protocol == SDMA) {
    sdma_fence(&s, to, value), sdma_fence(&s, va(done, 0), round);
  } else {
    pm4_write1(&s, to, value), pm4_release(&s, va(done, 0), round);
  }
  submit(queue, s.words, s.count);
  wait32(words(done), round, "a store");
}

// UPDATE_QUEUE with ring address 0 stops a queue; the next update with its ring starts it.
static void queue_without_ring(const struct run *run) {
  struct memory *to = allocate(GTT, 4096), *done = allocate(GTT, 4096), *aside = allocate(GTT, 4096);
  struct queue *queue = queue_open(run->protocol, RING, 7), *other = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct { uint64_t ring; uint32_t id, ring_size, percentage, priority; } stop = {0, queue->id, queue->ring_size, 100, 7};
    kfd(KFD_UPDATE_QUEUE, &stop, "UPDATE_QUEUE without a ring");
    struct stream s = {0};
    if (run->protocol == SDMA) sdma_fence(&s, va(to, 0), round), sdma_fence(&s, va(done, 0), round);
    else pm4_write1(&s, va(to, 0), round), pm4_release(&s, va(done, 0), round);
    submit(queue, s.words, s.count);
    for (uint32_t turn = 0; turn < 4; turn++) write_and_wait(other, va(aside, 64), round, aside, 4 * round + turn);
    STAYS(words(to)[0] == round - 1, "a queue without a ring ran");
    queue_update(queue, 100, 7);
    wait32(words(done), round, "the queue with its ring");
    CHECK(words(to)[0] == round, "the store is %u", words(to)[0]);
  }
}

// New memory is zero where another buffer has left its bytes, also in VRAM that the host cannot see.
static void fresh_memory(const struct run *run) {
  enum { SIZE = 1 << 18 };
  static const enum heap heaps[] = {GTT, VRAM, PRIVATE_VRAM};
  struct memory *seen = allocate(GTT, SIZE), *dirt = allocate(GTT, SIZE), *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(SDMA, RING, 7);
  uint32_t fence = 0;
  memset(dirt->at, 0xA5, SIZE);
  for (uint32_t round = 0; round < run->rounds * 3; round++) {
    struct memory *fresh = allocate(heaps[round % 3], SIZE);
    struct stream s = {0};
    memset(seen->at, 0xFF, SIZE);
    sdma_copy(&s, fresh->va, va(seen, 0), SIZE), sdma_copy(&s, va(dirt, 0), fresh->va, SIZE);
    sdma_fence(&s, va(done, 0), ++fence);
    submit(queue, s.words, s.count);
    wait32(words(done), fence, "two copies");
    for (uint32_t i = 0; i < SIZE / 4; i++) CHECK(!words(seen)[i], "new memory %u has %#x at %#x", round % 3, words(seen)[i], 4 * i);
    release(fresh);
  }
}

struct registration { uint64_t va, handle; };

static struct registration register_pages(char *pages, uint64_t size) {
  char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // an address range that is free
  CHECK(at != MAP_FAILED, "no address range");
  struct { uint64_t va, size, handle, pages; uint32_t gpu, flags; } ask = {(uint64_t)at, size, 0, (uint64_t)pages, gpu_id(),
                                                                           1u << 2 | 1u << 31 | 1u << 26};  // USERPTR, WRITABLE, COHERENT
  kfd(KFD_ALLOC_MEMORY, &ask, "ALLOC_MEMORY_OF_GPU of user pages");
  struct memory mapped = {.handle = ask.handle};
  map_to_gpu(&mapped);
  return (struct registration){(uint64_t)at, ask.handle};
}

static void unregister(struct registration made, uint64_t size) {
  struct memory mapped = {.handle = made.handle};
  unmap_from_gpu(&mapped);
  kfd(KFD_FREE_MEMORY, &made.handle, "FREE_MEMORY_OF_GPU of user pages");
  munmap((void *)made.va, size);
}

// The same pages registered twice are the same memory; the second registration outlives the first.
static void same_pages(const struct run *run) {
  char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct memory *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  uint32_t fence = 0;
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct registration first = register_pages(pages, 8192), second = register_pages(pages, 8192);
    write_and_wait(queue, first.va + 4096, round, done, ++fence);
    write_and_wait(queue, second.va + 4100, round + 1, done, ++fence);
    unregister(first, 8192);
    write_and_wait(queue, second.va + 8, round + 2, done, ++fence);
    volatile uint32_t *found = (volatile uint32_t *)pages;
    CHECK(found[1024] == round && found[1025] == round + 1 && found[2] == round + 2, "pages have %u, %u, %u", found[1024], found[1025], found[2]);
    unregister(second, 8192);
  }
  munmap(pages, 8192);
}

static char *pages_of_threads;
static uint32_t rounds_of_threads;

static void register_often(void *unused) {
  (void)unused;
  for (uint32_t round = 0; round < rounds_of_threads; round++) unregister(register_pages(pages_of_threads, 16384), 16384);
}

// Threads register and release the same pages at once, while a queue writes them through a further registration.
static void pages_from_threads(const struct run *run) {
  struct task *tasks[4];
  struct memory *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  pages_of_threads = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  rounds_of_threads = run->rounds * 4;
  struct registration own = register_pages(pages_of_threads, 16384);
  for (int t = 0; t < 4; t++) tasks[t] = task_start(register_often, NULL);
  for (uint32_t round = 1; round <= run->rounds * 4; round++) {
    write_and_wait(queue, own.va + 8192, round, done, round);
    CHECK(*(volatile uint32_t *)(pages_of_threads + 8192) == round, "the page has an old value");
  }
  for (int t = 0; t < 4; t++) task_join(tasks[t]);
  unregister(own, 16384);
  munmap(pages_of_threads, 16384);
}

// A wait for all of many events, which the GPU signals one by one: 64 times the rounds.
static void many_events(const struct run *run) {
  uint32_t count = run->rounds * 64;
  struct event *events = calloc(count, sizeof *events);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t i = 0; i < count; i++) events[i] = event_open();
  CHECK(!events_wait(events, count, 0), "an event is signalled before anything ran");
  for (uint32_t i = 0; i < count; i++) {
    struct stream s = {0};
    pm4_release_event(&s, event_mailbox(events[i]), events[i].trigger, events[i].trigger);
    submit(queue, s.words, s.count);
  }
  CHECK(events_wait(events, count, patience_ns / 1000000), "not all of %u events came", count);
  CHECK(!events_wait(events, count, 0), "an event is still signalled after its wait");
  for (uint32_t i = 0; i < count; i++) event_close(events[i]);
  free(events);
}

static volatile sig_atomic_t signals_seen;
static volatile int interrupting;
static void count_signal(int number) { (void)number, signals_seen++; }

static void *interrupt_main_thread(void *thread) {
  while (interrupting) pthread_kill(*(pthread_t *)thread, SIGUSR1), usleep(200);
  return NULL;
}

// Signals at any point of the calls of a thread: allocation, mapping, a wait that runs into its time-out, release.
static void signals_during_calls(const struct run *run) {
  struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART}, before;
  struct memory *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(SDMA, RING, 7);
  struct event event = event_open();
  pthread_t here = pthread_self(), other;
  sigaction(SIGUSR1, &action, &before);
  signals_seen = 0, interrupting = 1;
  CHECK(!pthread_create(&other, NULL, interrupt_main_thread, &here), "no thread");
  int wrong = 0;
  for (uint32_t round = 1; round <= run->rounds * 8 && !wrong; round++) {
    struct memory *memory = allocate(round % 2 ? USER_PAGES : GTT, 1 << 16);
    struct stream s = {0};
    sdma_fence(&s, va(memory, 0x8000), round), sdma_fence(&s, va(done, 0), round);
    submit(queue, s.words, s.count);
    wait32(words(done), round, "a store");
    wrong = words(memory)[0x2000] != round || events_wait(&event, 1, 2);
    release(memory);
  }
  interrupting = 0;
  pthread_join(other, NULL);
  sigaction(SIGUSR1, &before, NULL);
  event_close(event);
  CHECK(!wrong, "a call gave a wrong result");
  CHECK(signals_seen > 0, "no signal came");
}

const struct scenario driver_scenarios[] = {
    {"queue_without_ring-pm4", queue_without_ring, PM4, 2, 64},
    {"queue_without_ring-sdma", queue_without_ring, SDMA, 2, 64},
    {"fresh_memory", fresh_memory, SDMA, 2, 16},
    {"same_pages", same_pages, PM4, 2, 64},
    {"pages_from_threads", pages_from_threads, PM4, 2, 32},
    {"many_events", many_events, PM4, 2, 63},
    {"signals_during_calls", signals_during_calls, SDMA, 2, 64},
    {0},
};
