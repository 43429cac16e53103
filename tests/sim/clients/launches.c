// Two AQL dispatches that store the same words without a barrier between them, at lines that a finding must name. Built
// with the runtime of scenarios/ and -DBARRIER_BIT=0.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "work.h"

struct hsa_queue { uint32_t type, features; void *ring; uint64_t doorbell; uint32_t size; };
uint64_t hsa_queue_add_write_index_relaxed(const struct hsa_queue *queue, uint64_t count);

void fail(const char *file, int line, const char *format, ...) {
  va_list more;
  va_start(more, format);
  fprintf(stderr, "%s:%d: ", file, line), vfprintf(stderr, format, more), fputc('\n', stderr);
  exit(1);
}

int main(void) {
  device_open();
  struct queue *queue = queue_open(AQL, 8192, 7);
  struct hsa_queue known = {.ring = queue->ring->at, .size = queue->ring_size / 64};
  struct memory *to = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  signal_set(signals, 0, 1), signal_set(signals, 1, 1);
  hsa_queue_add_write_index_relaxed(&known, 1);  // the first launch
  make(queue, va(to, 0), 1, 64, signal_va(signals, 0));
  hsa_queue_add_write_index_relaxed(&known, 1);  // the second launch
  make(queue, va(to, 0), 2, 64, signal_va(signals, 1));
  signal_wait(signals, 0), signal_wait(signals, 1);
  leave_nothing();
  puts("OK");
}
