// What single packets of a PM4 queue do.
#include "packets.h"

#define RING 16384

static void finish(struct queue *queue, struct stream *s, uint64_t to, uint64_t value) {
  pm4_release(s, to, value);
  submit(queue, s->words, s->count);
}

// Many queues add to one 32-bit and one 64-bit counter; exact totals, a carry, untouched neighbours.
static void atomic_contention(const struct run *run) {
  struct memory *result = allocate(GTT, 4096);
  struct queue *queues[16];
  const uint32_t adds = 32;
  for (uint32_t q = 0; q < run->queues; q++) queues[q] = queue_open(PM4, RING, 7);
  longs(result)[1] = 0xFFFFFFF0;
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t q = 0; q < run->queues; q++) {
      struct stream s = {0};
      for (uint32_t i = 0; i < adds; i++) {
        pm4_atomic(&s, ATOMIC_ADD, va(result, 0), 1);
        pm4_atomic(&s, ATOMIC_ADD | ATOMIC_64, va(result, 8), 1);
      }
      finish(queues[q], &s, va(result, 64 + q * 8), round);
    }
    for (uint32_t q = 0; q < run->queues; q++) wait64(&longs(result)[8 + q], round, "a queue's atomics");
    uint64_t expected = (uint64_t)round * run->queues * adds;
    CHECK(words(result)[0] == expected, "32 bits: %u, wanted %llu", words(result)[0], (unsigned long long)expected);
    CHECK(longs(result)[1] == 0xFFFFFFF0 + expected, "64 bits: %llx", (unsigned long long)longs(result)[1]);
    CHECK(!words(result)[1] && !words(result)[4], "a neighbour was written");
  }
}

// Six operations of both widths, by turns on two queues that wait for each other; each intermediate result.
static void atomic_operations(const struct run *run) {
  static const uint32_t operations[] = {ATOMIC_SWAP, ATOMIC_ADD, ATOMIC_SUB, ATOMIC_AND, ATOMIC_OR, ATOMIC_XOR};
  struct memory *memory = allocate(GTT, 4096);
  struct queue *queues[2] = {queue_open(PM4, RING, 7), queue_open(PM4, RING, 7)};
  for (uint32_t round = 1; round <= run->rounds; round++)
    for (int wide = 0; wide < 2; wide++) {
      uint64_t mask = wide ? ~0ull : 0xFFFFFFFF, guard = wide ? 0 : 0xCAFEBABEull << 32, expected[6], value = 0;
      const uint64_t operands[] = {~0ull - round, round + 2ull, 0x100000003, 0xAAAAAAAAFF00FF00, 0x1234567800FF00FF,
                                   0xFEDCBA9876543210};
      longs(memory)[0] = guard, longs(memory)[8] = 0;
      struct stream streams[2] = {0};
      for (uint32_t i = 0; i < 6; i++) {
        uint64_t operand = operands[i] & mask;
        uint64_t results[] = {operand, value + operand, value - operand, value & operand, value | operand, value ^ operand};
        value = results[i] & mask, expected[i] = value | guard;
        struct stream *s = &streams[i & 1];
        pm4_wait(s, EQUAL, va(memory, 64), i, ~0u);
        pm4_atomic(s, operations[i] | (wide ? ATOMIC_64 : 0), va(memory, 0), operand);
        pm4_copy(s, va(memory, 0), va(memory, 128 + i * 8));
        pm4_copy(s, va(memory, 4), va(memory, 132 + i * 8));
        pm4_release(s, va(memory, 64), i + 1);
      }
      for (int q = 1; q >= 0; q--) submit(queues[q], streams[q].words, streams[q].count);
      wait64(&longs(memory)[8], 6, "six operations");
      for (uint32_t i = 0; i < 6; i++)
        CHECK(longs(memory)[16 + i] == expected[i], "operation %#x, %d bits: %llx, wanted %llx", operations[i], wide ? 64 : 32,
              (unsigned long long)longs(memory)[16 + i], (unsigned long long)expected[i]);
      CHECK(!longs(memory)[1] && !longs(memory)[22], "a neighbour was written");
    }
}

// Each comparison blocks while it is false, another queue goes on, and masked bits do not count.
static void wait_comparisons(const struct run *run) {
  static const uint32_t blocked[] = {0, 6, 6, 4, 5, 4, 4}, released[] = {0, 4, 5, 5, 4, 5, 6};
  struct memory *memory = allocate(GTT, 4096);
  struct queue *waiter = queue_open(PM4, RING, 7), *other = queue_open(PM4, RING, 7);
  uint32_t token = 0;
  for (uint32_t round = 0; round < run->rounds; round++)
    for (enum compare function = LESS; function <= GREATER; function++) {
      token++;
      words(memory)[0] = 0xA5A50000 | blocked[function];
      struct stream s = {0}, ping = {0};
      pm4_write1(&s, va(memory, 64), token);
      pm4_wait(&s, function, va(memory, 0), 5, 0xFFFF);
      finish(waiter, &s, va(memory, 128), token);
      wait32(&words(memory)[16], token, "the wait to be reached");
      finish(other, &ping, va(memory, 192), token);
      wait64(&longs(memory)[24], token, "the other queue");
      STAYS(longs(memory)[16] == token - 1, "function %d let pass what is false", function);
      words(memory)[0] = 0x5A5A0000 | released[function];
      wait64(&longs(memory)[16], token, "a comparison that is true");
    }
}

// The same with 64 bits: operands that differ above, below, in the sign bit.
static void wait64_comparisons(const struct run *run) {
  static const struct { enum compare function; uint64_t no, yes; } rows[] = {
      {LESS, 0x200000005, 0x1FFFFFFFF}, {LESS_EQUAL, 0x200000006, 0x200000005}, {EQUAL, 0x100000005, 0x200000005},
      {NOT_EQUAL, 0x200000005, 0x8000000200000005}, {GREATER_EQUAL, 0x1FFFFFFFF, 0x200000005},
      {GREATER, 0x200000005, 0x8000000000000000}};
  struct memory *memory = allocate(GTT, 4096);
  struct queue *waiter = queue_open(PM4, RING, 7);
  uint32_t token = 0;
  for (uint32_t round = 0; round < run->rounds; round++)
    for (size_t row = 0; row < 6; row++) {
      struct stream s = {0};
      token++;
      longs(memory)[0] = rows[row].no;
      pm4_write1(&s, va(memory, 64), token);
      pm4_wait64(&s, rows[row].function, va(memory, 0), 0x200000005);
      finish(waiter, &s, va(memory, 128), token);
      wait32(&words(memory)[16], token, "the wait to be reached");
      STAYS(longs(memory)[16] == token - 1, "function %d let pass what is false", rows[row].function);
      longs(memory)[0] = rows[row].yes;
      wait64(&longs(memory)[16], token, "a comparison that is true");
    }
}

// A timeline of 64 bits over its lower word's carry: blocked, released by a later point, an earlier point at once.
static void timeline_points(const struct run *run) {
  struct memory *memory = allocate(GTT, 4096);
  struct queue *waiter = queue_open(PM4, RING, 7), *producer = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    uint64_t point = ((uint64_t)round << 32) + 5;
    longs(memory)[0] = point - 10;
    struct stream s = {0}, signal = {0}, past = {0};
    pm4_write1(&s, va(memory, 64), round);
    pm4_wait64(&s, GREATER_EQUAL, va(memory, 0), point);
    pm4_acquire(&s);
    pm4_copy(&s, va(memory, 128), va(memory, 192));
    finish(waiter, &s, va(memory, 256), round);
    wait32(&words(memory)[16], round, "the wait to be reached");
    STAYS(longs(memory)[32] == round - 1, "passed before its point");
    pm4_write1(&signal, va(memory, 128), round * 31337);
    pm4_release(&signal, va(memory, 0), point + 7);
    finish(producer, &signal, va(memory, 320), round);
    wait64(&longs(memory)[32], round, "a later point");
    CHECK(words(memory)[48] == round * 31337, "the payload is %u", words(memory)[48]);
    pm4_wait64(&past, GREATER_EQUAL, va(memory, 0), point - 1);
    finish(waiter, &past, va(memory, 384), round);
    wait64(&longs(memory)[48], round, "a point that was passed");
  }
}

// Random waits for what was submitted before, on timelines that cross 32 bits; every payload once.
static void timeline_fuzz(const struct run *run) {
  uint32_t random = run->seed, steps = run->rounds;
  struct memory *timelines = allocate(GTT, run->queues * 64), *result = allocate(GTT, (steps + 1) * 4),
                *fences = allocate(GTT, run->queues * 8);
  struct queue *queues[8];
  uint64_t values[8];
  for (uint32_t q = 0; q < run->queues; q++) {
    queues[q] = queue_open(PM4, RING, 7);
    longs(timelines)[q * 8] = values[q] = 0xFFFFFFF0;
  }
  for (uint32_t step = 0; step < steps; step++) {
    uint32_t q = next_random(&random) % run->queues, waits = 1 + next_random(&random) % 4;
    struct stream s = {0};
    while (waits--) {
      uint32_t other = next_random(&random) % run->queues;
      pm4_wait64(&s, GREATER_EQUAL, va(timelines, other * 64), values[other]);
    }
    pm4_write1(&s, va(result, step * 4), step + 1);
    pm4_atomic(&s, ATOMIC_ADD, va(result, steps * 4), 1);
    pm4_release(&s, va(timelines, q * 64), ++values[q]);
    submit(queues[q], s.words, s.count);
    if (next_random(&random) % 17 == 0) wait32(&words(result)[step], step + 1, "a step");
  }
  for (uint32_t q = 0; q < run->queues; q++) {
    struct stream s = {0};
    finish(queues[q], &s, va(fences, q * 8), 1);
  }
  for (uint32_t q = 0; q < run->queues; q++) {
    wait64(&longs(fences)[q], 1, "a queue's end");
    CHECK(longs(timelines)[q * 8] == values[q], "timeline %u is %llx", q, (unsigned long long)longs(timelines)[q * 8]);
  }
  for (uint32_t step = 0; step < steps; step++) CHECK(words(result)[step] == step + 1, "step %u was lost", step);
  CHECK(words(result)[steps] == steps, "%u steps counted, wanted %u", words(result)[steps], steps);
}

// GTT to private VRAM, to private VRAM, back: any alignment, across pages; every byte of the target.
static void copy_through_vram(struct queue *queue, uint32_t round, uint32_t bytes, uint32_t misaligned) {
  enum { SIZE = 131072 };
  static unsigned char expected[SIZE];
  struct memory *source = allocate(GTT, SIZE), *target = allocate(GTT, SIZE), *done = allocate(GTT, 4096),
                *near = allocate(PRIVATE_VRAM, SIZE), *far = allocate(PRIVATE_VRAM, SIZE);
  for (uint32_t i = 0; i < SIZE; i++) source->at[i] = i * 37 + (i >> 8) + round * 13;
  memset(target->at, 0xA5, SIZE), memset(expected, 0xA5, SIZE);
  uint32_t from = 4093 + misaligned, to = 8191 + misaligned;
  memcpy(expected + to, source->at + from, bytes);
  struct stream s = {0};
  pm4_acquire(&s);
  pm4_dma(&s, va(source, from), va(near, 7), bytes);
  pm4_dma(&s, va(near, 7), va(far, 4093), bytes);
  pm4_dma(&s, va(far, 4093), va(target, to), bytes);
  finish(queue, &s, va(done, 0), 1);
  wait64(longs(done), 1, "three copies");
  for (uint32_t i = 0; i < SIZE; i++)
    CHECK((unsigned char)target->at[i] == expected[i], "%u bytes: byte %u is %#x, wanted %#x", bytes, i,
          (unsigned char)target->at[i], expected[i]);
  release(source), release(target), release(done), release(near), release(far);
}

static void private_dma(const struct run *run) {
  static const uint32_t sizes[] = {1, 3, 4, 63, 64, 65, 4095, 4096, 4097, 65535, 65536};
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) copy_through_vram(queue, round, sizes[(round - 1) % 11], round % 4);
}

static void private_dma_boundaries(const struct run *run) {
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 0; round < run->rounds; round++)
    for (uint32_t power = 2; power <= 16; power += 2)
      for (int side = -1; side <= 1; side++) copy_through_vram(queue, round, (1u << power) + side, (round + power) % 4);
}

// `count` buffers of eight dwords that write round * count + i to word i.
static void fill_indirect(char *buffer, struct memory *result, uint32_t count, uint32_t round) {
  for (uint32_t i = 0; i < count; i++) {
    struct stream body = {0};
    pm4_write1(&body, va(result, i * 4), round * count + i);
    pm4_pad(&body);
    memcpy(buffer + i * 256, body.words, body.count * 4);
  }
}

static void check_indirect(struct memory *result, uint32_t count, uint32_t round) {
  for (uint32_t i = 0; i < count; i++)
    CHECK(words(result)[i] == round * count + i, "buffer %u wrote %u, wanted %u", i, words(result)[i], round * count + i);
  CHECK(!words(result)[count], "a neighbour was written");
}

static void run_indirect(struct queue *queue, struct memory *buffer, struct memory *result, struct memory *done, uint32_t count,
                         uint32_t round) {
  struct stream s = {0};
  for (uint32_t i = 0; i < count; i++) pm4_indirect(&s, va(buffer, i * 256), 8, 0);
  finish(queue, &s, va(done, 0), round);
  wait64(longs(done), round, "indirect buffers");
  check_indirect(result, count, round);
}

static void indirect_buffers(const struct run *run) {
  enum { COUNT = 64 };
  struct memory *buffer = allocate(CODE, COUNT * 256), *result = allocate(GTT, 4096), *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    fill_indirect(buffer->at, result, COUNT, round);
    run_indirect(queue, buffer, result, done, COUNT, round);
  }
}

// The same from private VRAM, where DMA put the commands; what was fetched from there before must not run again.
static void vram_command_fetch(const struct run *run) {
  enum { COUNT = 16 };
  struct memory *staged = allocate(GTT, COUNT * 256), *buffer = allocate(PRIVATE_VRAM, COUNT * 256), *result = allocate(GTT, 4096),
                *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct stream s = {0};
    fill_indirect(staged->at, result, COUNT, round);
    pm4_acquire(&s);
    pm4_dma(&s, va(staged, 0), va(buffer, 0), COUNT * 256);
    finish(queue, &s, va(done, 64), round);
    wait64(&longs(done)[8], round, "the upload");
    run_indirect(queue, buffer, result, done, COUNT, round);
  }
}

// One buffer that every queue runs, by atomics on one counter.
static void shared_ib(const struct run *run) {
  struct memory *buffer = allocate(CODE, 4096), *result = allocate(GTT, 4096);
  struct queue *queues[8];
  struct stream body = {0};
  for (int i = 0; i < 7; i++) pm4_atomic(&body, ATOMIC_ADD, va(result, 0), 1);
  pm4_pad(&body);
  memcpy(buffer->at, body.words, body.count * 4);
  for (uint32_t q = 0; q < run->queues; q++) queues[q] = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t q = 0; q < run->queues; q++) {
      struct stream s = {0};
      pm4_indirect(&s, va(buffer, 0), body.count, 0);
      finish(queues[q], &s, va(result, 64 + q * 8), round);
    }
    for (uint32_t q = 0; q < run->queues; q++) wait64(&longs(result)[8 + q], round, "a queue's buffer");
    CHECK(words(result)[0] == round * run->queues * 7, "%u atomics, wanted %u", words(result)[0], round * run->queues * 7);
  }
}

// A buffer that goes on in another one, which goes on in a third.
static void chained_ib(const struct run *run) {
  struct memory *buffer = allocate(CODE, 4096), *result = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    for (uint32_t link = 0; link < 3; link++) {
      struct stream body = {0};
      pm4_write1(&body, va(result, link * 4), round + link);
      while (link < 2 && (body.count + 4) % 8) put(&body, ONE_DWORD_NOP);
      if (link < 2) pm4_indirect(&body, va(buffer, (link + 1) * 256), 8, 1);
      pm4_pad(&body);
      memcpy(buffer->at + link * 256, body.words, body.count * 4);
      CHECK(link < 2 ? body.count == 16 : body.count == 8, "a link of %u dwords", body.count);
    }
    words(buffer)[15] = (words(buffer)[15] & ~0xFFFFFu) | 16;  // the second link is as long as the first
    struct stream s = {0};
    pm4_indirect(&s, va(buffer, 0), 16, 0);
    finish(queue, &s, va(result, 64), round);
    wait64(&longs(result)[8], round, "a chain");
    for (uint32_t link = 0; link < 3; link++) CHECK(words(result)[link] == round + link, "link %u did not run", link);
  }
}

// COND_EXEC skips where its word is 0, and only what it says.
static void cond_exec(const struct run *run) {
  struct memory *result = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct stream s = {0};
    words(result)[0] = round & 1, words(result)[16] = 0;
    pm4_if(&s, va(result, 0), 5);
    pm4_write1(&s, va(result, 64), 7);
    pm4_write1(&s, va(result, 68), round);
    finish(queue, &s, va(result, 128), round);
    wait64(&longs(result)[16], round, "a condition");
    CHECK(words(result)[16] == (round & 1 ? 7 : 0), "condition %u, and the word is %u", round & 1, words(result)[16]);
    CHECK(words(result)[17] == round, "it skipped too much");
  }
}

// The counter that COPY_DATA reads lies between two GET_CLOCK_COUNTERS.
static void clock_counters(const struct run *run) {
  struct memory *result = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  struct { uint64_t gpu, cpu, system, frequency; uint32_t gpu_id, pad; } before = {.gpu_id = gpu_id()}, after = before;
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct stream s = {0};
    kfd(KFD_GET_CLOCK_COUNTERS, &before, "GET_CLOCK_COUNTERS");
    pm4_clock(&s, va(result, 0));
    finish(queue, &s, va(result, 64), round);
    wait64(&longs(result)[8], round, "the counter");
    kfd(KFD_GET_CLOCK_COUNTERS, &after, "GET_CLOCK_COUNTERS");
    CHECK(before.gpu <= longs(result)[0] && longs(result)[0] <= after.gpu, "%llu is not between %llu and %llu",
          (unsigned long long)longs(result)[0], (unsigned long long)before.gpu, (unsigned long long)after.gpu);
    CHECK(before.gpu < after.gpu && before.cpu < after.cpu && after.frequency, "clocks stand still");
  }
}

// The write pointer and the doorbell pass 32 bits.
static void doorbell_rollover(const struct run *run) {
  struct memory *result = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, 4096, 7);
  queue_start_at(queue, (2ull << 32) - 1024);
  for (uint32_t token = 1; token <= run->rounds * 8; token++) {
    struct stream s = {0};
    for (uint32_t i = 0; i < 63; i++) pm4_write1(&s, va(result, i * 4), token * 256 + i);
    finish(queue, &s, va(result, 512), token);
    wait64(&longs(result)[64], token, "a batch");
    for (uint32_t i = 0; i < 63; i++) CHECK(words(result)[i] == token * 256 + i, "word %u is %u", i, words(result)[i]);
    CHECK(!words(result)[63], "a neighbour was written");
  }
  CHECK(queue->written >= 2ull << 32, "the counter did not pass 32 bits");
}

const struct scenario packet_scenarios[] = {
    {"pm4_atomic_contention", atomic_contention, PM4, 2, 64, 16},
    {"pm4_atomic_operations", atomic_operations, PM4, 2, 64},
    {"pm4_wait_comparisons", wait_comparisons, PM4, 1, 8},
    {"pm4_wait64_comparisons", wait64_comparisons, PM4, 1, 64},
    {"pm4_timeline_points", timeline_points, PM4, 2, 32},
    {"pm4_timeline_fuzz", timeline_fuzz, PM4, 32, 1024, 8, 1337},
    {"pm4_private_dma", private_dma, PM4, 3, 32},
    {"pm4_private_dma_boundaries", private_dma_boundaries, PM4, 1, 3},
    {"pm4_indirect_buffers", indirect_buffers, PM4, 2, 128},
    {"pm4_shared_ib", shared_ib, PM4, 2, 64, 8},
    {"pm4_vram_command_fetch", vram_command_fetch, PM4, 2, 64},
    {"pm4_doorbell_rollover", doorbell_rollover, PM4, 1, 64},
    {"pm4_chained_ib", chained_ib, PM4, 2, 32},
    {"pm4_cond_exec", cond_exec, PM4, 2, 32},
    {"pm4_clock_counters", clock_counters, PM4, 2, 32},
    {0},
};
