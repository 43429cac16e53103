// One scenario: a function that returns, or CHECK ends it.
#pragma once
#include <stdint.h>
#include "kfd.h"

struct run {
  enum protocol protocol;
  uint32_t rounds, queues, seed;
  const char *name;
};

struct scenario {
  const char *name;
  void (*body)(const struct run *run);
  enum protocol protocol;
  uint32_t rounds, many_rounds, queues, seed;  // many_rounds: with --long
};

extern const struct scenario packet_scenarios[], pm4_dispatch_scenarios[], queue_scenarios[], transfer_scenarios[], dispatch_scenarios[],
    process_scenarios[], driver_scenarios[];

void fail(const char *file, int line, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
void skip(const char *reason) __attribute__((noreturn));
#define CHECK(what, ...) do { if (!(what)) fail(__FILE__, __LINE__, __VA_ARGS__); } while (0)

// A thread whose CHECKs end the scenario once it is joined.
struct task;
struct task *task_start(void (*body)(void *), void *argument);
void task_join(struct task *task);
int task_over(struct task *task);

static inline uint32_t next_random(uint32_t *state) {  // xorshift32, Marsaglia 2003
  *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
  return *state;
}

// Nothing happens for a millisecond: `still` holds at every look.
#define STAYS(still, ...) do { for (uint64_t end = now_ns() + 1000000; now_ns() < end;) CHECK(still, __VA_ARGS__); } while (0)
