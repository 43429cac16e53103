// SDMA queues alone and between compute queues; interrupts that come of fences; memory that comes and goes.
#include "work.h"

#define RING 16384
#define WORDS 63

static void copy_and_fence(struct queue *queue, uint64_t from, uint64_t to, uint32_t bytes, uint64_t fence, uint32_t value) {
  struct stream s = {0};
  sdma_copy(&s, from, to, bytes);
  sdma_fence(&s, fence, value);
  submit(queue, s.words, s.count);
}

static void check_bytes(const char *found, const unsigned char *expected, uint32_t count, const char *what) {
  for (uint32_t i = 0; i < count; i++)
    CHECK((unsigned char)found[i] == expected[i], "%s: byte %u is %#x, wanted %#x", what, i, (unsigned char)found[i], expected[i]);
}

// Copies of any size and alignment on several queues, through several wraps of their rings; every byte of the target.
static void sdma_copies(const struct run *run, const uint32_t *sizes, uint32_t count, uint32_t ring_size) {
  enum { STRIDE = 131072, QUEUES = 2, FROM = 4093, TO = 7 };
  static unsigned char expected[STRIDE];
  struct memory *source = allocate(GTT, QUEUES * STRIDE), *target = allocate(GTT, QUEUES * STRIDE), *done = allocate(GTT, 4096);
  struct queue *queues[QUEUES];
  for (uint32_t q = 0; q < QUEUES; q++) queues[q] = queue_open(SDMA, ring_size, 7);
  for (uint32_t round = 1; round <= run->rounds * count; round++) {
    for (uint32_t i = 0; i < QUEUES * STRIDE; i++) source->at[i] = i * 17 + (i >> 8) + round;
    memset(target->at, 0xA5, QUEUES * STRIDE);
    for (uint32_t q = 0; q < QUEUES; q++)
      copy_and_fence(queues[q], va(source, q * STRIDE + FROM), va(target, q * STRIDE + TO), sizes[(round + q) % count],
                     va(done, q * 64), round);
    for (uint32_t q = 0; q < QUEUES; q++) {
      wait32(&words(done)[q * 16], round, "a copy");
      memset(expected, 0xA5, STRIDE);
      memcpy(expected + TO, source->at + q * STRIDE + FROM, sizes[(round + q) % count]);
      check_bytes(target->at + q * STRIDE, expected, STRIDE, "a copy");
    }
  }
}

static void sdma_flood(const struct run *run) {
  static const uint32_t sizes[] = {1, 3, 64, 65, 4095, 4096, 4097, 65535};
  sdma_copies(run, sizes, 8, 4096);
}

static void sdma_copy_boundaries(const struct run *run) {
  static const uint32_t sizes[] = {3, 4, 5, 15, 16, 17, 255, 256, 257, 16383, 16384, 16385};
  sdma_copies(run, sizes, 12, 4096);
}

// A stopped SDMA queue keeps its copy until it runs again; a compute queue goes on. Then a new one.
static void sdma_queue_lifecycle(const struct run *run) {
  struct memory *source = allocate(GTT, 4096), *target = allocate(GTT, 4096), *fences = allocate(GTT, 4096),
                *signals = allocate(GTT, 4096), *aside = allocate(GTT, 4096);
  struct queue *other = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct queue *queue = queue_open(SDMA, RING, 7);
    memset(target->at, 0, 4096);
    for (uint32_t w = 0; w < WORDS; w++) words(source)[w] = round * 65536 + w;
    queue_update(queue, 0, 7);
    copy_and_fence(queue, va(source, 0), va(target, 0), WORDS * 4, va(fences, 0), round);
    signal_set(signals, 0, 1);
    make(other, va(aside, 0), round, WORDS, signal_va(signals, 0));
    signal_wait(signals, 0);
    STAYS(words(fences)[0] == round - 1 && !words(target)[0], "a stopped SDMA queue copied");
    queue_update(queue, 100, 7);
    wait32(words(fences), round, "the copy");
    check_words(words(target), round * 65536, WORDS, "the copy");
    drain(queue);
    queue_close(queue);
  }
}

// Events by an interrupt alone: not signalled before, both there at once with the payload, consumed by the wait.
static void event_interrupt(const struct run *run) {
  enum { QUEUES = 2 };
  struct memory *source = allocate(GTT, QUEUES * 1024), *result = allocate(GTT, QUEUES * 1024);
  struct queue *queues[QUEUES];
  for (uint32_t q = 0; q < QUEUES; q++) queues[q] = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct event events[QUEUES];
    for (uint32_t q = 0; q < QUEUES; q++) events[q] = event_open();
    for (uint32_t phase = 0; phase < 2; phase++) {
      CHECK(!events_wait(events, QUEUES, 0), "an event is signalled before anything ran");
      for (uint32_t q = 0; q < QUEUES; q++) {
        uint32_t first = round * 65536 + phase * 4096 + q * 256;
        for (uint32_t w = 0; w < WORDS; w++) words(source)[q * 256 + w] = first + w, words(result)[q * 256 + w] = 0;
        struct stream s = {0};
        if (run->protocol == SDMA) {
          sdma_copy(&s, va(source, q * 1024), va(result, q * 1024), WORDS * 4);
          sdma_fence(&s, event_mailbox(events[q]), events[q].trigger);
          sdma_trap(&s, events[q].trigger);
        } else {
          for (uint32_t w = 0; w < WORDS; w++) pm4_write1(&s, va(result, q * 1024 + w * 4), first + w);
          pm4_release_event(&s, event_mailbox(events[q]), events[q].trigger, events[q].trigger);
        }
        submit(queues[q], s.words, s.count);
      }
      CHECK(events_wait(events, QUEUES, patience_ns / 1000000), "waited too long for interrupts");
      for (uint32_t q = 0; q < QUEUES; q++)
        check_words(words(result) + q * 256, round * 65536 + phase * 4096 + q * 256, WORDS, "what came with the interrupt");
    }
    CHECK(!events_wait(events, QUEUES, 0), "an event stayed signalled");
    for (uint32_t q = 0; q < QUEUES; q++) event_close(events[q]);
  }
}

// SDMA to private VRAM, compute there, SDMA back, `slots` at once; consumers are submitted first.
static void pipeline(const struct run *run, uint32_t slots, uint32_t window) {
  enum { STRIDE = 1024 };
  struct memory *input = allocate(GTT, slots * STRIDE), *output = allocate(GTT, slots * STRIDE),
                *near = allocate(PRIVATE_VRAM, slots * STRIDE), *far = allocate(PRIVATE_VRAM, slots * STRIDE),
                *signals = allocate(GTT, 8192);
  struct queue *upload = queue_open(SDMA, RING, 7), *download = queue_open(SDMA, RING, 7),
               *compute = queue_open(run->protocol, RING, 7);
  for (uint32_t job = 0; job < run->rounds * slots + window; job++) {
    if (job >= window) {  // what was submitted `window` jobs ago
      uint32_t n = (job - window) % slots;
      signal_wait(signals, n * 3 + 2);
      check_words(words(output) + n * STRIDE / 4, (job - window) * 256 + 17, WORDS, "through the pipeline");
    }
    if (job >= run->rounds * slots) continue;
    uint32_t n = job % slots;
    for (uint32_t stage = 0; stage < 3; stage++) signal_set(signals, n * 3 + stage, 1);
    for (uint32_t w = 0; w < WORDS; w++) words(input)[n * STRIDE / 4 + w] = job * 256 + w, words(output)[n * STRIDE / 4 + w] = 0;
    struct stream s = {0};
    sdma_wait(&s, signal_va(signals, n * 3 + 1) + offsetof(struct signal, value), 0);
    sdma_copy(&s, va(far, n * STRIDE), va(output, n * STRIDE), WORDS * 4);
    sdma_fence(&s, signal_va(signals, n * 3 + 2) + offsetof(struct signal, value), 0);
    submit(download, s.words, s.count);
    derive(compute, signal_va(signals, n * 3), va(near, n * STRIDE), va(far, n * STRIDE), 17, WORDS, signal_va(signals, n * 3 + 1));
    copy_and_fence(upload, va(input, n * STRIDE), va(near, n * STRIDE), WORDS * 4,
                   signal_va(signals, n * 3) + offsetof(struct signal, value), 0);
  }
}

static void engine_pipeline(const struct run *run) { pipeline(run, 4, 4); }
static void engine_pipeline_window(const struct run *run) { pipeline(run, 8, 3); }

// `memory` as a compute queue sees it.
static void observe(const struct run *run, struct queue *queue, struct memory *memory, struct memory *snapshot,
                    struct memory *signals) {
  signal_set(signals, 0, 1);
  if (run->protocol == AQL) {
    uint32_t count = memory->size / 4;
    for (uint32_t at = 0; at < count; at += 1024)
      derive(queue, 0, va(memory, at * 4), va(snapshot, at * 4), 0, 1024, at + 1024 < count ? 0 : signal_va(signals, 0));
  } else {
    struct stream s = {0};
    pm4_acquire(&s);
    pm4_dma(&s, va(memory, 0), va(snapshot, 0), memory->size);
    pm4_release(&s, signal_va(signals, 0) + offsetof(struct signal, value), 0);
    submit(queue, s.words, s.count);
  }
  signal_wait(signals, 0);
}

// Pages of the process itself, registered, copied through VRAM, given back; odd offsets, sizes across pages.
static void registered_memory(const struct run *run) {
  enum { SIZE = 32768 };
  static const uint32_t sizes[] = {1, 3, 4, 63, 4097, 16387};
  static unsigned char expected[SIZE];
  struct memory *near = allocate(PRIVATE_VRAM, SIZE), *fence = allocate(GTT, 4096), *signals = allocate(GTT, 4096),
                *snapshot = allocate(GTT, SIZE);
  struct queue *transfer = queue_open(SDMA, RING, 7), *observer = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct memory *source = allocate(USER_PAGES, SIZE), *target = allocate(USER_PAGES, SIZE);
    for (uint32_t i = 0; i < SIZE / 4; i++) words(source)[i] = round * 65536 + i;
    for (uint32_t test = 0; test < 6; test++) {
      uint32_t from = test & 1 ? 4093 : 1, to = test & 1 ? 8191 : 3;
      memset(target->at, 0xCD, SIZE), memset(expected, 0xCD, SIZE);
      memcpy(expected + to, source->at + from, sizes[test]);
      struct stream s = {0};
      sdma_copy(&s, va(source, from), va(near, 0), sizes[test]);
      sdma_copy(&s, va(near, 0), va(target, to), sizes[test]);
      sdma_fence(&s, va(fence, 0), round * 8 + test);
      submit(transfer, s.words, s.count);
      wait32(words(fence), round * 8 + test, "two copies");
      observe(run, observer, target, snapshot, signals);
      check_bytes(target->at, expected, SIZE, "the process's pages");
      check_bytes(snapshot->at, expected, SIZE, "the compute queue's view of them");
    }
    drain(transfer), drain(observer);
    release(source), release(target);
  }
}

// VRAM keeps its bytes while it is mapped nowhere; other queues go on.
static void vram_remap(const struct run *run) {
  enum { SIZE = 65536 };
  struct memory *source = allocate(GTT, SIZE), *output = allocate(GTT, SIZE), *near = allocate(PRIVATE_VRAM, SIZE),
                *fences = allocate(GTT, 4096), *signals = allocate(GTT, 4096), *snapshot = allocate(GTT, SIZE);
  struct queue *transfer = queue_open(SDMA, RING, 7), *survivor = queue_open(PM4, RING, 7),
               *observer = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t w = 0; w < SIZE / 4; w++) words(source)[w] = round * 65536 + w, words(output)[w] = 0;
    copy_and_fence(transfer, va(source, 0), va(near, 0), SIZE, va(fences, 0), round * 2);
    wait32(words(fences), round * 2, "the upload");
    drain(transfer);
    unmap_from_gpu(near);
    signal_set(signals, 1, 1);
    make(survivor, va(fences, 1024), round, WORDS, signal_va(signals, 1));
    signal_wait(signals, 1);
    map_to_gpu(near);
    copy_and_fence(transfer, va(near, 0), va(output, 0), SIZE, va(fences, 0), round * 2 + 1);
    wait32(words(fences), round * 2 + 1, "the download");
    observe(run, observer, near, snapshot, signals);
    drain(observer);
    for (uint32_t w = 0; w < SIZE / 4; w++)
      CHECK(words(output)[w] == round * 65536 + w && words(snapshot)[w] == round * 65536 + w, "word %u is %#x and %#x", w,
            words(output)[w], words(snapshot)[w]);
  }
}

// Words that the host stores to VRAM through the BAR reach a dispatch with an acquire fence of system scope.
static void bar_store(const struct run *run) {
  struct memory *near = allocate(VRAM, 4096), *output = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t w = 0; w < WORDS; w++) words(near)[w] = round * 1000 + w;
    signal_set(signals, 1, 1);
    work_submit(queue, &(struct work){.from = va(near, 0), .to = va(output, 0), .count = WORDS, .done = signal_va(signals, 1)});
    signal_wait(signals, 1);
    check_words(words(output), round * 1000, WORDS, "stored through the BAR");
  }
}

// The same before a copy, with the packets that ROCr sends around each of its copies.
static void bar_store_sdma(const struct run *run) {
  struct memory *near = allocate(VRAM, 4096), *output = allocate(GTT, 4096), *fence = allocate(GTT, 4096);
  struct queue *queue = queue_open(SDMA, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct stream s = {0};
    for (uint32_t w = 0; w < WORDS; w++) words(near)[w] = round * 1000 + w;
    sdma_hdp_flush(&s), sdma_gcr(&s);
    sdma_copy(&s, va(near, 0), va(output, 0), WORDS * 4);
    sdma_gcr(&s), sdma_fence(&s, va(fence, 0), round);
    submit(queue, s.words, s.count);
    wait32(words(fence), round, "the copy");
    check_words(words(output), round * 1000, WORDS, "stored through the BAR");
  }
}

// Code as ROCr's loader writes it: through the BAR, the last byte read back, an ACQUIRE_MEM in a vendor packet without
// fences. The dispatch acquires at agent scope.
static void bar_code(const struct run *run) {
  struct memory *code = allocate(VRAM, sizeof kernel_image), *jumps = allocate(CODE, 4096), *output = allocate(GTT, 4096),
                *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct stream body = {0}, jump = {0};
    memset(code->at, 0, sizeof kernel_image);
    memcpy(code->at, kernel_image, sizeof kernel_image);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    (void)*(volatile char *)(code->at + sizeof kernel_image - 1);
    pm4(&body, 0x58, 8), put(&body, 0), put(&body, sizeof kernel_image / 256 + 1), put(&body, 0), put_va(&body, va(code, 0) >> 8);
    put(&body, 10), put(&body, 1u | ACQUIRE_ALL);  // GLI_INV
    pm4_pad(&body);
    memcpy(jumps->at, body.words, body.count * 4);
    pm4_indirect(&jump, va(jumps, 0), body.count, 0);
    struct vendor_ib packet = {.header = AQL_VENDOR, .format = 1, .left = 10, .signal = signal_va(signals, 0)};
    memcpy(packet.jump, jump.words, sizeof packet.jump);
    signal_set(signals, 0, 1), signal_set(signals, 1, 1);
    send(queue, &packet);
    signal_wait(signals, 0);
    struct { uint64_t from, to; uint32_t value, group; } arguments = {0, va(output, 0), round, WORDS};
    uint64_t index = reserve(queue, 1);
    queue->code = code;
    struct dispatch dispatch = dispatch_of(KERNEL_WORK, queue, index, &arguments, sizeof arguments, WORDS, WORDS, signal_va(signals, 1));
    dispatch.header = AQL_DISPATCH | BARRIER_BIT | AGENT_SCOPES;
    publish(queue, index, &dispatch);
    ring(queue, index);
    signal_wait(signals, 1);
    check_words(words(output), round, WORDS, "made by code in VRAM");
    drain(queue);
  }
}

const struct scenario transfer_scenarios[] = {
    {"bar_store-aql", bar_store, AQL, 3, 64},
    {"bar_store-sdma", bar_store_sdma, SDMA, 3, 64},
    {"bar_code-aql", bar_code, AQL, 2, 64},
    {"sdma_flood", sdma_flood, SDMA, 1, 16},
    {"sdma_copy_boundaries", sdma_copy_boundaries, SDMA, 1, 3},
    {"sdma_queue_lifecycle", sdma_queue_lifecycle, SDMA, 2, 64},
    {"sdma_event_interrupt", event_interrupt, SDMA, 2, 64},
    {"pm4_event_interrupt", event_interrupt, PM4, 2, 64},
    {"engine_pipeline-pm4", engine_pipeline, PM4, 2, 64},
    {"engine_pipeline-aql", engine_pipeline, AQL, 2, 64},
    {"engine_pipeline_window-pm4", engine_pipeline_window, PM4, 1, 32},
    {"engine_pipeline_window-aql", engine_pipeline_window, AQL, 1, 32},
    {"registered_memory-pm4", registered_memory, PM4, 1, 64},
    {"registered_memory-aql", registered_memory, AQL, 1, 64},
    {"vram_remap-pm4", vram_remap, PM4, 1, 64},
    {"vram_remap-aql", vram_remap, AQL, 1, 64},
    {0},
};
