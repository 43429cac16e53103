// Dispatches of a PM4 queue: what an AQL packet's registers would be, set by hand.
#include "work.h"

#define RING 16384
#define PGM_LO 0x2E0C
#define PGM_RSRC1 0x2E12
#define PGM_RSRC3 0x2E28
#define RESOURCE_LIMITS 0x2E15
#define NUM_THREAD_X 0x2E07
#define USER_DATA_0 0x2E40
#define START_X 0x2E04
#define SHADER_EN 1u
#define FORCE_START_AT_000 (1u << 2)
#define USE_THREAD_DIMENSIONS (1u << 5)
#define WAVE32 (1u << 15)

static void set_up(struct stream *s, struct memory *image, uint32_t kernel, uint64_t arguments, uint32_t group) {
  const uint32_t *descriptor = kernel_image + kernel / 4;  // kernel descriptor: entry at 16, rsrc3 at 44, 1 at 48, 2 at 52
  uint64_t entry = va(image, kernel) + *(const int64_t *)(descriptor + 4);
  const uint32_t start[] = {0, 0, 0}, threads[] = {group, 1, 1}, code[] = {entry >> 8, entry >> 40},
                 rsrc[] = {descriptor[12], descriptor[13]}, user[] = {arguments, arguments >> 32}, none = 0;
  pm4_set_sh(s, START_X, 3, start), pm4_set_sh(s, NUM_THREAD_X, 3, threads), pm4_set_sh(s, PGM_LO, 2, code);
  pm4_set_sh(s, PGM_RSRC1, 2, rsrc), pm4_set_sh(s, PGM_RSRC3, 1, &descriptor[11]), pm4_set_sh(s, RESOURCE_LIMITS, 1, &none);
  pm4_set_sh(s, USER_DATA_0, 2, user);
}

// The grid in the packet, or in memory that a packet of the same stream wrote; the second dispatch takes the first's words.
static void dispatches(const struct run *run, int indirect) {
  enum { WORDS = 100, GROUP = 32, INITIATOR = SHADER_EN | FORCE_START_AT_000 | WAVE32 };
  struct memory *image = kernels(), *to = allocate(GTT, 4096), *arguments = allocate(GTT, 4096), *done = allocate(GTT, 4096);
  struct queue *queue = queue_open(PM4, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct { uint64_t from, to; uint32_t value, group; } first = {0, va(to, 0), round * 1000, GROUP},
                                                         second = {va(to, 0), va(to, 2048), 7, GROUP};
    memcpy(arguments->at, &first, sizeof first), memcpy(arguments->at + 64, &second, sizeof second);
    memset(to->at, 0, 4096);
    struct stream s = {0};
    pm4_acquire(&s);
    set_up(&s, image, KERNEL_WORK, va(arguments, 0), GROUP);
    pm4(&s, 0x15, 5), put(&s, WORDS), put(&s, 1), put(&s, 1), put(&s, INITIATOR | USE_THREAD_DIMENSIONS);
    pm4_flush_waves(&s), pm4_acquire(&s);
    set_up(&s, image, KERNEL_WORK, va(arguments, 64), GROUP);
    if (indirect) {
      const uint32_t groups[] = {4, 1, 1};
      pm4_write(&s, va(done, 64), 3, groups);
      pm4(&s, 0x16, 4), put_va(&s, va(done, 64)), put(&s, INITIATOR);
    } else {
      pm4(&s, 0x15, 5), put(&s, 4), put(&s, 1), put(&s, 1), put(&s, INITIATOR);
    }
    pm4_release(&s, va(done, 0), round);
    submit(queue, s.words, s.count);
    wait64(longs(done), round, "two dispatches");
    check_words(words(to), round * 1000, WORDS, "the first dispatch");
    for (uint32_t i = 0; i < 128; i++)
      CHECK(words(to)[512 + i] == (i < WORDS ? round * 1000 + i + 7 : 7), "the second dispatch: word %u is %u", i, words(to)[512 + i]);
    CHECK(!words(to)[640], "a neighbour was written");
  }
}

static void dispatch_direct(const struct run *run) { dispatches(run, 0); }
static void dispatch_indirect(const struct run *run) { dispatches(run, 1); }

const struct scenario pm4_dispatch_scenarios[] = {
    {"pm4_dispatch_direct", dispatch_direct, PM4, 2, 32},
    {"pm4_dispatch_indirect", dispatch_indirect, PM4, 2, 32},
    {0},
};
