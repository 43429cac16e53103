// AQL packets: dispatches with waves, barriers, indirect buffers, publication, and how a queue ends with a bad packet.
#include "work.h"

#define RING 4096
#define GUARD 0xDEADBEEFu

static void store(struct memory *memory, uint32_t value) { for (uint32_t i = 0; i < memory->size / 4; i++) words(memory)[i] = value; }

static void launch(struct queue *queue, uint32_t kernel, const void *arguments, uint32_t bytes, const struct dispatch *shape) {
  uint64_t index = reserve(queue, 1);
  struct dispatch packet = dispatch_of(kernel, queue, index, arguments, bytes, 1, 1, shape->signal);
  if (shape->header) packet.header = shape->header;
  packet.dimensions = shape->dimensions, packet.private_bytes = shape->private_bytes, packet.group_bytes = shape->group_bytes;
  memcpy(packet.group, shape->group, sizeof packet.group), memcpy(packet.grid, shape->grid, sizeof packet.grid);
  publish(queue, index, &packet);
  ring(queue, index);
}

// Grids that are no multiple of their groups, in one to three dimensions, waves of 32 and 64: each work-item once.
static void dispatch_geometry(const struct run *run) {
  static const struct dispatch shapes[] = {
      {.dimensions = 1, .group = {1, 1, 1}, .grid = {1, 1, 1}},       {.dimensions = 1, .group = {64, 1, 1}, .grid = {200, 1, 1}},
      {.dimensions = 1, .group = {1024, 1, 1}, .grid = {1500, 1, 1}}, {.dimensions = 2, .group = {8, 4, 1}, .grid = {21, 10, 1}},
      {.dimensions = 2, .group = {33, 3, 1}, .grid = {70, 7, 1}},     {.dimensions = 3, .group = {4, 4, 4}, .grid = {9, 6, 5}},
      {.dimensions = 3, .group = {5, 3, 7}, .grid = {11, 13, 8}},     {.dimensions = 1, .group = {96, 1, 1}, .grid = {95, 1, 1}}};
  struct memory *count = allocate(GTT, 8192), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 0; round < run->rounds * 16; round++) {
    struct dispatch shape = shapes[round / 2 % 8];
    uint32_t items = shape.grid[0] * shape.grid[1] * shape.grid[2];
    struct { uint64_t count; uint32_t size[2], group[3]; } arguments = {
        va(count, 0), {shape.grid[0], shape.grid[1]}, {shape.group[0], shape.group[1], shape.group[2]}};
    store(count, 0), signal_set(signals, 0, 1);
    shape.signal = signal_va(signals, 0);
    launch(queue, round % 2 ? KERNEL_GEOMETRY_WAVE64 : KERNEL_GEOMETRY, &arguments, sizeof arguments, &shape);
    signal_wait(signals, 0);
    for (uint32_t i = 0; i < 2048; i++) CHECK(words(count)[i] == (i < items), "work-item %u ran %u times", i, words(count)[i]);
  }
}

static uint32_t lds_word(uint32_t seed, uint32_t index, uint32_t steps) {
  return (seed ^ ((index & ~255u) | ((index + 17 * steps) & 255))) + steps;
}

static void lds_launch(struct queue *queue, uint32_t kernel, struct memory *to, uint32_t slot, uint32_t groups, uint32_t seed,
                       uint32_t steps, uint64_t signal) {
  uint32_t offset = seed % 4 * 256;
  struct { uint64_t to; uint32_t seed, offset, steps; } arguments = {va(to, slot * 4096), seed, offset, steps};
  launch(queue, kernel, &arguments, sizeof arguments,
         &(struct dispatch){.dimensions = 1, .group = {256, 1, 1}, .grid = {256 * groups, 1, 1}, .group_bytes = 1024 + offset,
                            .signal = signal});
}

// Words that go round in LDS, with barriers; any size of LDS, several queues at once.
static void lds_dispatch(const struct run *run) {
  enum { GROUPS = 3 };
  uint32_t random = run->seed;
  struct memory *to = allocate(GTT, 4 * 4096), *signals = allocate(GTT, 4096);
  struct queue *queues[4];
  for (uint32_t q = 0; q < run->queues; q++) queues[q] = queue_open(AQL, RING, 7);
  for (uint32_t round = 0; round < run->rounds; round++) {
    uint32_t seeds[4];
    store(to, GUARD);
    for (uint32_t q = 0; q < run->queues; q++) {
      seeds[q] = next_random(&random), signal_set(signals, q, 1);
      lds_launch(queues[q], q % 2 ? KERNEL_LDS_WAVE64 : KERNEL_LDS, to, q, GROUPS, seeds[q], 1 + q, signal_va(signals, q));
    }
    for (uint32_t q = 0; q < run->queues; q++) {
      signal_wait(signals, q);
      for (uint32_t i = 0; i < 1024; i++) {
        uint32_t wanted = i < GROUPS * 256 ? lds_word(seeds[q], i, 1 + q) : GUARD;
        CHECK(words(to)[q * 1024 + i] == wanted, "queue %u: word %u is %#x, wanted %#x", q, i, words(to)[q * 1024 + i], wanted);
      }
    }
  }
}

// Kernels with and without LDS by turns on one queue, without the host between them.
static void mixed_dispatch(const struct run *run) {
  enum { SLOTS = 8 };
  struct memory *to = allocate(GTT, SLOTS * 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    store(to, GUARD);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
      signal_set(signals, slot, 1);
      if ((round + slot) % 2) lds_launch(queue, KERNEL_LDS, to, slot, 1 + slot % 3, round * 17 + slot, 2, signal_va(signals, slot));
      else make(queue, va(to, slot * 4096), round * 100, 1 + (round + slot) % 31, signal_va(signals, slot));
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
      int with_lds = (round + slot) % 2;
      uint32_t count = with_lds ? 256 * (1 + slot % 3) : 1 + (round + slot) % 31;
      signal_wait(signals, slot);
      for (uint32_t i = 0; i < 1024; i++) {
        uint32_t wanted = i >= count ? GUARD : with_lds ? lds_word(round * 17 + slot, i, 2) : round * 100 + i;
        CHECK(words(to)[slot * 1024 + i] == wanted, "slot %u: word %u is %#x", slot, i, words(to)[slot * 1024 + i]);
      }
    }
  }
}

// Only the barrier bit orders two dispatches of a queue: each takes the words of the one before.
static void dispatch_barrier(const struct run *run) {
  enum { LINKS = 12 };
  struct memory *to = allocate(GTT, LINKS * 512), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    signal_set(signals, 0, 1);
    make(queue, va(to, 0), round * 1000, 100, 0);
    for (uint32_t link = 1; link < LINKS; link++)
      derive(queue, 0, va(to, (link - 1) * 512), va(to, link * 512), link, 100, link == LINKS - 1 ? signal_va(signals, 0) : 0);
    signal_wait(signals, 0);
    check_words(words(to) + (LINKS - 1) * 128, round * 1000 + LINKS * (LINKS - 1) / 2, 100, "the last dispatch");
  }
}

// One signal counts the dispatches of all queues down; the last one is held behind a gate, and a copy waits for 0.
static void counted_completion(const struct run *run) {
  enum { BATCH = 32, WORDS = 8, COUNT, GATE };
  uint32_t slots = run->queues * BATCH;
  struct memory *to = allocate(GTT, slots * 64), *copy = allocate(GTT, slots * 64), *signals = allocate(GTT, 4096),
                *fence = allocate(GTT, 4096);
  struct queue *queues[4], *consumer = queue_open(SDMA, RING, 7);
  for (uint32_t q = 0; q < run->queues; q++) queues[q] = queue_open(AQL, 4096, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    volatile struct signal *count = &signals_of(signals)[COUNT];
    signal_set(signals, COUNT, slots), signal_set(signals, GATE, 1), store(to, 0);
    struct stream s = {0};
    sdma_wait(&s, signal_va(signals, COUNT) + offsetof(struct signal, value), 0);
    sdma_copy(&s, va(to, 0), va(copy, 0), slots * 64);
    sdma_fence(&s, va(fence, 0), round);
    submit(consumer, s.words, s.count);
    for (uint32_t slot = 0; slot < slots; slot++)
      derive(queues[slot / BATCH], slot == slots - 1 ? signal_va(signals, GATE) : 0, 0, va(to, slot * 64), round * 65536 + slot,
             WORDS, signal_va(signals, COUNT));
    for (uint64_t end = now_ns() + patience_ns; count->value != 1;) CHECK(now_ns() < end, "%ld are left", (long)count->value);
    STAYS(count->value == 1 && words(fence)[0] == round - 1, "0 before the last dispatch");
    signal_set(signals, GATE, 0);
    wait32(words(fence), round, "the copy");
    CHECK(count->value == 0, "the signal went on to %ld", (long)count->value);
    for (uint32_t slot = 0; slot < slots; slot++) check_words(words(copy) + slot * 16, round * 65536 + slot, WORDS, "a counted dispatch");
  }
}

// Masks of one workgroup processor each: every workgroup runs there, on another one for each mask.
static void cu_mask_switch(const struct run *run) {
  enum { GROUPS = 64, MASKS = 4 };
  uint32_t cus = property("simd_count") / property("simd_per_cu"), places[MASKS];
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 0; round < run->rounds; round++)
    for (uint32_t m = 0; m < MASKS; m++) {
      uint32_t mask[32] = {0}, chosen = round % 2 ? MASKS - 1 - m : m;
      mask[chosen * 2 / 32] |= 3u << chosen * 2 % 32;
      queue_cu_mask(queue, mask, (cus + 31) & ~31u);
      store(to, GUARD), signal_set(signals, 0, 1);
      struct { uint64_t to; } arguments = {va(to, 0)};
      launch(queue, KERNEL_PLACEMENT, &arguments, sizeof arguments,
             &(struct dispatch){.dimensions = 1, .group = {1, 1, 1}, .grid = {GROUPS, 1, 1}, .signal = signal_va(signals, 0)});
      signal_wait(signals, 0);
      for (uint32_t g = 0; g < GROUPS; g++)
        CHECK(words(to)[g] == words(to)[0] && words(to)[g] != GUARD, "one mask, and places %#x and %#x", words(to)[0], words(to)[g]);
      if (!round) places[chosen] = words(to)[0];
      CHECK(words(to)[0] == places[chosen], "another place at another visit");
      for (uint32_t other = 0; !round && other < m; other++) CHECK(places[other] != places[m], "two masks, one place");
      CHECK(words(to)[GROUPS] == GUARD, "a neighbour was written");
    }
}

// Scratch from one of two buffers, by turns: the right sums, the other buffer and both guards untouched.
static void scratch_dispatch(const struct run *run) {
  enum { THREADS = 256, GROUP = 64, LANE_BYTES = 64, WAVE_BYTES = LANE_BYTES * 32 };
  uint32_t engines = property("array_count") / property("simd_arrays_per_engine"), bytes = WAVE_BYTES * engines * 16;
  struct memory *backing[2] = {allocate(GTT, bytes + 4096), allocate(GTT, bytes + 4096)}, *to = allocate(GTT, 4096),
                *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    uint32_t used = round & 1, touched = 0, seed = round * 4096;
    store(backing[0], GUARD), store(backing[1], GUARD), store(to, GUARD), signal_set(signals, 0, 1);
    queue_update(queue, 0, 7);  // the CP reads amd_queue_t's scratch as the queue gets on
    words(queue->pointers)[0x8C / 4] = bytes / WAVE_BYTES / engines | WAVE_BYTES / 256 << 12;  // COMPUTE_TMPRING_SIZE
    longs(queue->pointers)[0xA0 / 8] = va(backing[used], 0), longs(queue->pointers)[0xA8 / 8] = bytes;
    queue_update(queue, 100, 7);
    struct { uint64_t to; uint32_t seed, group; } arguments = {va(to, 0), seed, GROUP};
    launch(queue, KERNEL_SCRATCH, &arguments, sizeof arguments,
           &(struct dispatch){.dimensions = 1, .group = {GROUP, 1, 1}, .grid = {THREADS, 1, 1}, .private_bytes = LANE_BYTES,
                              .signal = signal_va(signals, 0)});
    signal_wait(signals, 0);
    for (uint32_t i = 0; i < 1024; i++) {
      uint32_t sum = 0;
      for (uint32_t w = 0; w < 16; w++) sum += 16 * w * w + seed + i + w;
      CHECK(words(to)[i] == (i < THREADS ? sum : GUARD), "work-item %u: %#x, wanted %#x", i, words(to)[i], sum);
    }
    drain(queue);
    for (uint32_t w = 0; w < backing[used]->size / 4; w++) {
      touched |= words(backing[used])[w] != GUARD && w < bytes / 4;
      CHECK(words(backing[!used])[w] == GUARD, "the other buffer was written");
      CHECK(w < bytes / 4 || words(backing[used])[w] == GUARD, "beyond the scratch");
    }
    CHECK(touched, "nothing lies in the scratch that was named");
  }
}

// A wave that talks to the host: payload, then request; answer, then reply; for as many rounds.
static void shader_host_ping_pong(const struct run *run) {
  enum { LANES = 32 };
  struct memory *asked = allocate(GTT, 4096), *answered = allocate(GTT, 4096), *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  struct { uint64_t asked, answered, to; uint32_t seed, rounds; } arguments = {va(asked, 0), va(answered, 0), va(to, 0), run->seed, run->rounds};
  uint32_t state[LANES];
  for (uint32_t lane = 0; lane < LANES; lane++) state[lane] = run->seed ^ lane;
  signal_set(signals, 0, 1);
  launch(queue, KERNEL_EXCHANGE, &arguments, sizeof arguments,
         &(struct dispatch){.dimensions = 1, .group = {LANES, 1, 1}, .grid = {LANES, 1, 1}, .signal = signal_va(signals, 0)});
  for (uint32_t round = 1; round <= run->rounds; round++) {
    wait32(&words(asked)[LANES], round, "a request");
    for (uint32_t lane = 0; lane < LANES; lane++) {
      CHECK(words(asked)[lane] == state[lane], "round %u, lane %u asks %#x, wanted %#x", round, lane, words(asked)[lane], state[lane]);
      words(answered)[lane] = state[lane] + round * lane;
      state[lane] = (state[lane] + round * lane) * 5 + round;
    }
    __atomic_store_n(&words(answered)[LANES], round, __ATOMIC_RELEASE);
  }
  signal_wait(signals, 0);
  for (uint32_t lane = 0; lane < LANES; lane++) CHECK(words(to)[lane] == state[lane], "lane %u ends with %#x", lane, words(to)[lane]);
  CHECK(!words(to)[LANES] && !words(asked)[LANES + 1], "a neighbour was written");
}

// A queue is stopped four times while its wave runs: the wave stands still, another queue goes on, and it goes on.
static void running_queue_pause(const struct run *run) {
  struct memory *board = allocate(GTT, 4096), *signals = allocate(GTT, 4096), *aside = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7), *other = queue_open(PM4, RING, 7);
  volatile uint32_t *ticks = &words(board)[0], *stop = &words(board)[64], *to = &words(board)[128];
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct { uint64_t ticks, stop, to; uint32_t token; } arguments = {va(board, 0), va(board, 256), va(board, 512), round};
    *ticks = *stop = *to = 0, signal_set(signals, 0, 1);
    launch(queue, KERNEL_GATE, &arguments, sizeof arguments,
           &(struct dispatch){.dimensions = 1, .group = {1, 1, 1}, .grid = {1, 1, 1}, .signal = signal_va(signals, 0)});
    for (uint32_t pause = 0; pause < 4; pause++) {
      uint32_t before = *ticks;
      for (uint64_t end = now_ns() + patience_ns; *ticks == before;) CHECK(now_ns() < end, "the wave stands still");
      queue_update(queue, 0, 7);
      signal_set(signals, 1, 1);
      make(other, va(aside, 0), round * 4 + pause, 8, signal_va(signals, 1));
      signal_wait(signals, 1);
      uint32_t stopped = *ticks;
      STAYS(*ticks == stopped && signals_of(signals)[0].value == 1, "a stopped wave runs");
      queue_update(queue, 100, 7);
    }
    *stop = round;
    signal_wait(signals, 0);
    CHECK(*to == *ticks * 3, "%u ticks, and the wave counted %u", *ticks, *to / 3);
    drain(queue);
  }
}

// Barriers on five signals: AND waits for all, OR for one; by the host and by another queue, any of them decisive.
static void barrier_of(const struct run *run, enum aql_kind kind) {
  enum { DONE = 5 };
  struct memory *signals = allocate(GTT, 4096), *fence = allocate(GTT, 4096);
  struct queue *waiter = queue_open(AQL, RING, 7), *producer = queue_open(PM4, 16384, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    uint32_t decisive = round % 5;
    struct barrier packet = {.header = kind | BARRIER_BIT | SYSTEM_SCOPES, .signal = signal_va(signals, DONE)};
    for (uint32_t n = 0; n < 6; n++) signal_set(signals, n, 1);
    for (uint32_t n = 0; n < 5; n++) packet.signals[n] = signal_va(signals, n);
    send(waiter, &packet);
    struct stream most = {0}, last = {0};
    for (uint32_t n = 0; n < 5; n++)
      if (kind == AQL_AND && n != decisive) pm4_atomic(&most, ATOMIC_SWAP | ATOMIC_64, packet.signals[n] + 8, 0);
    pm4_release(&most, va(fence, 0), round);
    submit(producer, most.words, most.count);
    wait64(longs(fence), round, "four of five signals");
    STAYS(signals_of(signals)[DONE].value == 1, "the barrier let pass");
    if (round & 1) signal_set(signals, decisive, 0);
    else pm4_atomic(&last, ATOMIC_SWAP | ATOMIC_64, packet.signals[decisive] + 8, 0), submit(producer, last.words, last.count);
    signal_wait(signals, DONE);
    for (uint32_t n = 0; n < 5; n++)
      CHECK(signals_of(signals)[n].value == (kind == AQL_OR && n != decisive), "signal %u is %ld", n, (long)signals_of(signals)[n].value);
    drain(waiter), drain(producer);
  }
}

static void barrier_and(const struct run *run) { barrier_of(run, AQL_AND); }
static void barrier_or(const struct run *run) { barrier_of(run, AQL_OR); }

// Indirect buffers of PM4 by turns with barriers that wait for them, through the ring's wrap.
static void indirect_buffers(const struct run *run) {
  enum { COUNT = 40 };
  struct memory *buffer = allocate(CODE, COUNT * 256), *result = allocate(GTT, 4096), *signals = allocate(GTT, 8192);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t n = 0; n < COUNT; n++) {
      struct stream body = {0}, jump = {0};
      signal_set(signals, n * 2, 1), signal_set(signals, n * 2 + 1, 1);
      pm4_write1(&body, va(result, n * 4), round * COUNT + n);
      pm4_pad(&body);
      memcpy(buffer->at + n * 256, body.words, body.count * 4);
      pm4_indirect(&jump, va(buffer, n * 256), body.count, 0);
      struct vendor_ib packet = {.header = AQL_VENDOR | SYSTEM_SCOPES, .format = 1, .left = 10, .signal = signal_va(signals, n * 2)};
      memcpy(packet.jump, jump.words, sizeof packet.jump);
      send(queue, &packet);
      send(queue, &(struct barrier){.header = AQL_AND | BARRIER_BIT | SYSTEM_SCOPES, .signals = {packet.signal}, .signal = signal_va(signals, n * 2 + 1)});
    }
    for (uint32_t n = 0; n < COUNT; n++) {
      signal_wait(signals, n * 2 + 1), signal_wait(signals, n * 2);
      CHECK(words(result)[n] == round * COUNT + n, "buffer %u wrote %u", n, words(result)[n]);
    }
    CHECK(!words(result)[COUNT], "a neighbour was written");
    drain(queue);
  }
}

struct publisher { struct queue *queue; uint64_t index; struct dispatch packet; };

static void publishing(void *argument) {
  struct publisher *me = argument;
  publish(me->queue, me->index, &me->packet);
}

// Threads publish all slots but the first, and the doorbell rings: nothing runs until the first one is there.
static void publish_holes_of(const struct run *run, uint32_t count) {
  enum { WORDS = 8 };
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096), *aside = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7), *other = queue_open(PM4, 16384, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct publisher publishers[8];
    struct task *tasks[8];
    store(to, 0), signal_set(signals, 8, 1);
    uint64_t first = reserve(queue, count);
    for (uint32_t n = 0; n < count; n++) {
      struct { uint64_t from, to; uint32_t value, group; } arguments = {0, va(to, n * 64), round * 1000 + n, WORDS};
      signal_set(signals, n, 1);
      publishers[n] = (struct publisher){queue, first + n, dispatch_of(KERNEL_WORK, queue, first + n, &arguments, sizeof arguments, WORDS, WORDS, signal_va(signals, n))};
    }
    for (uint32_t n = 1; n < count; n++) tasks[n] = task_start(publishing, &publishers[n]);
    for (uint32_t n = 1; n < count; n++) task_join(tasks[n]);
    ring(queue, first + count - 1);
    make(other, va(aside, 0), round, WORDS, signal_va(signals, 8));
    signal_wait(signals, 8);
    STAYS(signals_of(signals)[count - 1].value == 1 && !words(to)[16], "a packet behind the hole ran");
    publish(queue, first, &publishers[0].packet);
    ring(queue, first + count - 1);
    for (uint32_t n = 0; n < count; n++) {
      signal_wait(signals, n);
      check_words(words(to) + n * 16, round * 1000 + n, WORDS, "a published packet");
    }
    drain(queue);
  }
}

static void publish_holes(const struct run *run) { publish_holes_of(run, 7); }
static void publish_holes_all_slots(const struct run *run) { publish_holes_of(run, 6); }

// The doorbell rings for later packets before earlier ones: each runs once.
static void doorbell_order(const struct run *run) {
  enum { COUNT = 8, WORDS = 8 };
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    uint64_t first = reserve(queue, COUNT);
    for (uint32_t n = COUNT; n-- > 0;) {
      struct { uint64_t from, to; uint32_t value, group; } arguments = {0, va(to, n * 64), round * 1000 + n, WORDS};
      signal_set(signals, n, 1);
      struct dispatch packet = dispatch_of(KERNEL_WORK, queue, first + n, &arguments, sizeof arguments, WORDS, WORDS, signal_va(signals, n));
      publish(queue, first + n, &packet);
      ring(queue, first + n);
    }
    for (uint32_t n = 0; n < COUNT; n++) {
      signal_wait(signals, n);
      check_words(words(to) + n * 64 / 4, round * 1000 + n, WORDS, "a packet rung out of order");
    }
    STAYS(signals_of(signals)[0].value == 0, "a packet ran twice");
  }
}

// A PM4 queue makes an AQL packet: DMA for its body, the header last, the write index, the doorbell. The host does not ring.
static void gpu_queue_producer(const struct run *run) {
  enum { WORDS = 63 };
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096), *packets = allocate(GTT, 4096), *fence = allocate(GTT, 4096);
  struct queue *target = queue_open(AQL, RING, 7), *producer = queue_open(PM4, 16384, 7);
  struct memory *doorbells = allocate(DOORBELLS, 8192);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    uint64_t index = target->written++;
    uint64_t slot = va(target->ring, index % (RING / 64) * 64);
    struct { uint64_t from, to; uint32_t value, group; } arguments = {0, va(to, 0), round * 17, WORDS};
    struct dispatch packet = dispatch_of(KERNEL_WORK, target, index, &arguments, sizeof arguments, WORDS, WORDS, signal_va(signals, 0));
    uint32_t header;
    memcpy(packets->at, &packet, sizeof packet), memcpy(&header, &packet, 4);
    signal_set(signals, 0, 1);
    struct stream s = {0};
    pm4_acquire(&s);
    pm4_dma(&s, va(packets, 4), slot + 4, 60);
    pm4_write1(&s, slot, header);
    pm4_release(&s, (uint64_t)target->wptr, index + 1);
    pm4_release(&s, va(doorbells, target->doorbell_index * 8), index);
    pm4_release(&s, va(fence, 0), round);
    submit(producer, s.words, s.count);
    signal_wait(signals, 0);
    wait64(longs(fence), round, "the producer");
    check_words(words(to), round * 17, WORDS, "a dispatch that the GPU made");
  }
}

// A signal with a mailbox: its value, the event's id in KFD's page, and the interrupt that ends WAIT_EVENTS.
static void signal_event(const struct run *run) {
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *queue = queue_open(AQL, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct event event = event_open();
    signal_set(signals, 0, 1);
    signals_of(signals)[0].mailbox = event_mailbox(event), signals_of(signals)[0].event = event.trigger;
    CHECK(!events_wait(&event, 1, 0), "signalled before anything ran");
    make(queue, va(to, 0), round, 8, signal_va(signals, 0));
    CHECK(events_wait(&event, 1, patience_ns / 1000000), "waited too long for the interrupt");
    CHECK(signals_of(signals)[0].value == 0, "the interrupt came before the signal");
    check_words(words(to), round, 8, "what came with the interrupt");
    event_close(event);
  }
}

// Packets that no queue can run: the queue ends with the exception the kernel's header has for them, another goes on.
static void bad_packets(const struct run *run) {
  static const struct { const char *what; uint32_t code; } rows[] = {
      {"0 dimensions", 16}, {"a grid of 0", 16}, {"65,537 bytes of LDS", 17}, {"no kernel", 18}, {"type 9", 19},
      {"AGENT_DISPATCH", 20}, {"a group of 1,025", 21}, {"vendor format 7", 23}};
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  struct queue *survivor = queue_open(AQL, RING, 7);
  for (uint32_t round = 0; round < run->rounds * 8; round++) {
    struct queue *queue = queue_open(AQL, RING, 7);
    struct { uint64_t from, to; uint32_t value, group; } arguments = {0, va(to, 2048), 9, 8};
    uint64_t index = reserve(queue, 1);
    struct dispatch packet = dispatch_of(KERNEL_WORK, queue, index, &arguments, sizeof arguments, 8, 8, signal_va(signals, 1));
    switch (round % 8) {
      case 0: packet.dimensions = 0; break;
      case 1: packet.grid[0] = 0; break;
      case 2: packet.group_bytes = 65537; break;
      case 3: packet.kernel = 0; break;
      case 4: packet.header = 9 | SYSTEM_SCOPES; break;
      case 5: packet.header = AQL_AGENT | SYSTEM_SCOPES; break;
      case 6: packet.group[0] = 1025; break;
      default: packet.header = AQL_VENDOR | SYSTEM_SCOPES, packet.dimensions = 7;
    }
    signal_set(signals, 0, 1), signal_set(signals, 1, 1);
    publish(queue, index, &packet);
    ring(queue, index);
    for (uint64_t end = now_ns() + patience_ns; !error_reason(queue);) CHECK(now_ns() < end, "no exception for %s", rows[round % 8].what);
    CHECK(error_reason(queue) == 1ull << (rows[round % 8].code - 1), "%s: error reason %#llx, wanted bit %u", rows[round % 8].what,
          (unsigned long long)error_reason(queue), rows[round % 8].code - 1);
    CHECK(signals_of(signals)[1].value == 1 && !words(to)[513], "%s ran", rows[round % 8].what);
    make(survivor, va(to, 0), round, 8, signal_va(signals, 0));
    signal_wait(signals, 0);
    check_words(words(to), round, 8, "the survivor");
    queue_close(queue);
  }
}

const struct scenario dispatch_scenarios[] = {
    {"aql_barrier_and", barrier_and, AQL, 5, 32},
    {"aql_barrier_or", barrier_or, AQL, 5, 32},
    {"aql_indirect_buffers", indirect_buffers, AQL, 2, 128},
    {"aql_running_queue_pause", running_queue_pause, AQL, 1, 32},
    {"aql_publish_holes", publish_holes, AQL, 2, 64},
    {"aql_publish_holes-all-slots", publish_holes_all_slots, AQL, 2, 64},
    {"aql_gpu_queue_producer", gpu_queue_producer, AQL, 2, 64},
    {"aql_dispatch_barrier", dispatch_barrier, AQL, 2, 32},
    {"aql_lds_dispatch", lds_dispatch, AQL, 2, 16, 4, 4321},
    {"aql_mixed_dispatch", mixed_dispatch, AQL, 2, 64},
    {"aql_counted_completion", counted_completion, AQL, 1, 16, 2, 12345},
    {"aql_dispatch_geometry", dispatch_geometry, AQL, 1, 32},
    {"aql_cu_mask_switch", cu_mask_switch, AQL, 2, 16},
    {"aql_scratch_dispatch", scratch_dispatch, AQL, 2, 32},
    {"aql_shader_host_ping_pong", shader_host_ping_pong, AQL, 8, 64, 1, 12345},
    {"aql_doorbell_order", doorbell_order, AQL, 2, 64},
    {"aql_signal_event", signal_event, AQL, 2, 64},
    {"aql_bad_packets", bad_packets, AQL, 1, 4},
    {0},
};
