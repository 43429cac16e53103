#include "work.h"

#define ARGUMENT_SLOTS 1024  // queue_open has as many
#define GROUP 64

struct memory *kernels(void) {
  struct memory *made = allocate(CODE, sizeof kernel_image);
  memcpy(made->at, kernel_image, sizeof kernel_image);
  return made;
}

struct dispatch dispatch_of(uint32_t kernel, struct queue *queue, uint64_t index, const void *arguments, uint32_t bytes,
                            uint32_t threads, uint32_t group, uint64_t signal) {
  uint32_t slot = index % ARGUMENT_SLOTS * 64;
  CHECK(bytes <= 64, "%u bytes of arguments", bytes);
  memcpy(queue->arguments->at + slot, arguments, bytes);
  if (!queue->code) queue->code = kernels();
  return (struct dispatch){AQL_DISPATCH | BARRIER_BIT | SYSTEM_SCOPES, 1, {group, 1, 1}, 0, {threads, 1, 1}, 0, 0,
                           va(queue->code, kernel), va(queue->arguments, slot), 0, signal};
}

static void pm4_work(struct queue *queue, const struct work *work) {
  struct stream s = {0};
  for (int i = 0; i < 5; i++)
    if (work->waits[i]) pm4_wait(&s, EQUAL, work->waits[i] + offsetof(struct signal, value), 0, ~0u);
  pm4_acquire(&s);
  if (work->from) {
    pm4_dma(&s, work->from, work->to, work->count * 4);
    for (uint32_t i = 0; i < work->count; i++) pm4_atomic(&s, ATOMIC_ADD, work->to + i * 4, work->value);
  } else {
    uint32_t values[1024];
    for (uint32_t i = 0; i < work->count; i++) values[i] = i + work->value;
    pm4_write(&s, work->to, work->count, values);
  }
  if (work->done) pm4_release(&s, work->done + offsetof(struct signal, value), 0);
  submit(queue, s.words, s.count);
}

static void aql_work(struct queue *queue, const struct work *work) {
  struct barrier barrier = {.header = AQL_AND | BARRIER_BIT | SYSTEM_SCOPES};
  int waits = 0;
  for (int i = 0; i < 5; i++)
    if (work->waits[i]) barrier.signals[waits++] = work->waits[i];
  if (waits) send(queue, &barrier);
  struct { uint64_t from, to; uint32_t value, group; } arguments = {work->from, work->to, work->value, GROUP};
  uint64_t index = reserve(queue, 1);
  struct dispatch packet = dispatch_of(KERNEL_WORK, queue, index, &arguments, sizeof arguments, work->count, GROUP, work->done);
  publish(queue, index, &packet);
  ring(queue, index);
}

void work_submit(struct queue *queue, const struct work *work) {
  CHECK(work->count <= 1024 && queue->protocol != SDMA, "work of %u words", work->count);
  (queue->protocol == AQL ? aql_work : pm4_work)(queue, work);
}

void make(struct queue *queue, uint64_t to, uint32_t value, uint32_t count, uint64_t done) {
  work_submit(queue, &(struct work){.to = to, .value = value, .count = count, .done = done});
}

void derive(struct queue *queue, uint64_t wait, uint64_t from, uint64_t to, uint32_t value, uint32_t count, uint64_t done) {
  work_submit(queue, &(struct work){.waits = {wait}, .from = from, .to = to, .value = value, .count = count, .done = done});
}

void check_words(const volatile uint32_t *found, uint32_t first, uint32_t count, const char *what) {
  for (uint32_t i = 0; i < count; i++)
    CHECK(found[i] == first + i, "%s: word %u is %#x, wanted %#x", what, i, found[i], first + i);
  CHECK(!found[count], "%s: the word behind is %#x", what, found[count]);
}
