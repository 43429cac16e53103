// What the walker (pool.c) and the kernels agree on. backends/cpu/tasks.py writes the same structs.
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

// A kernel computes items [first, last) of a grid of grid[0] * grid[1] * grid[2] items, x fastest. `arguments`
// is the block that a Launch describes: buffer addresses (0 for none), then 32-bit constants. No result may
// depend on how a grid is cut into ranges, on their order, or on who runs them.
// Returns OK, or why it refused: ids are data, and a kernel that indexes by one checks it first.
typedef int32_t kernel(const void *arguments, const uint32_t grid[3], uint32_t first, uint32_t last);

enum { OK = 0, BAD_TOKEN = 1, BAD_POSITION = 2, BAD_SLOT = 3, BAD_PAGE = 4, BAD_ROW = 5, BAD_EXPERT = 6, BAD_ENTRY = 7 };

// Exported under the name that a Launch gives, with zrt_ in front.
#define KERNEL(name) \
    __attribute__((visibility("default"))) int32_t zrt_##name(const void *arguments, const uint32_t grid[3], uint32_t first, uint32_t last)
#define EXPORT __attribute__((visibility("default")))

#define IS_COUNT 0x80000000u  // of a dimension: the rest is an index into the step's counts

typedef struct {
    kernel *run;
    const void *arguments;
    uint32_t dims[3];
    uint32_t barrier;      // every task before this one has ended
    uint32_t least, most;  // items a claim, whatever the number of threads
} task;

// One to a task, on a cache line of its own. `next`: the call's epoch, and the first item that nobody claimed.
typedef struct {
    _Alignas(64) _Atomic uint64_t next;
    _Atomic uint32_t done;  // items that have ended
} cell;

typedef struct {
    const task *tasks;
    const _Atomic int32_t *counts;  // the step's: ir.graph.SYMBOLS. Another step's as soon as a call has ended
    cell *cells;
    uint32_t count;
    uint32_t shuffle;  // 0; else ranges are run in another order, to find what depends on it
    _Atomic uint64_t *seen;  // null; else readings of the CPU's counter: the call's first and last, then each task's
} task_list;

typedef struct {
    _Alignas(64) _Atomic(const task_list *) running;  // null between calls
    _Atomic uint32_t epoch;                         // of the latest call
    _Atomic uint32_t stop;                          // the running call is to end
    _Atomic uint64_t failed;                        // 0; else why << 32 | task
    _Alignas(64) _Atomic uint32_t inside;           // helpers in zrt_help
    uint32_t threads;                               // that may take part, the caller among them
    void (*yield)(void);                            // sched_yield
} pool;
