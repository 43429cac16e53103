// A piece of work that means the same on a PM4 and on an AQL queue: wait for signals, make words, complete a signal.
#pragma once
#include "packets.h"
#include "kernels.h"

struct work {
  uint64_t waits[5];  // signals that have to be 0; 0 for none
  uint64_t from, to;  // to[i] = (from ? from[i] : i) + value
  uint32_t value, count;
  uint64_t done;      // the signal, which is 1 before and 0 after; 0 for none
};

struct memory *kernels(void);  // the image of kernels.h where the GPU fetches it; of one scenario
struct dispatch dispatch_of(uint32_t kernel, struct queue *queue, uint64_t index, const void *arguments, uint32_t bytes,
                            uint32_t threads, uint32_t group, uint64_t signal);
void work_submit(struct queue *queue, const struct work *work);

// to[i] = i + value, without waiting; to[i] = from[i] + value, once the signal `wait` is 0.
void make(struct queue *queue, uint64_t to, uint32_t value, uint32_t count, uint64_t done);
void derive(struct queue *queue, uint64_t wait, uint64_t from, uint64_t to, uint32_t value, uint32_t count, uint64_t done);
// found[i] == first + i, and a 0 behind them.
void check_words(const volatile uint32_t *found, uint32_t first, uint32_t count, const char *what);
