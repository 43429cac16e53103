// The pool under ThreadSanitizer: helpers that come and go, counts that change between calls, calls that refuse.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "task.h"

int64_t zrt_run(pool *p, const task_list *g);
uint32_t zrt_help(pool *p, uint32_t seen);

enum { TASKS = 12, ITEMS = 64, HELPERS = 3 };

static pool shared;
static atomic_int over;
static uint32_t made[TASKS + 1][ITEMS];  // plain memory: the pool alone orders who writes and who reads it

typedef struct {
    uint32_t number, bad;
} arguments_of;

// Reads what all items of the task before wrote.
static int32_t step(const void *arguments, const uint32_t grid[3], uint32_t first, uint32_t last) {
    const arguments_of *g = arguments;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < grid[0]; i++) sum += made[g->number][i];
    for (uint32_t i = first; i < last; i++) {
        if (i == g->bad) return BAD_ROW;
        made[g->number + 1][i] = sum / grid[0] + 1;
    }
    return OK;
}

static void *help(void *unused) {
    uint32_t seen = 0;
    while (!atomic_load(&over)) {
        seen = zrt_help(&shared, seen);
        sched_yield();
    }
    return unused;
}

static void yield(void) { sched_yield(); }

static int check(int64_t result, int64_t wanted, uint32_t items) {
    if (result != wanted) return fprintf(stderr, "result %lld, not %lld\n", (long long)result, (long long)wanted);
    if (result) return 0;
    for (uint32_t i = 0; i < items; i++)
        if (made[TASKS][i] != TASKS) return fprintf(stderr, "item %u: %u\n", i, made[TASKS][i]);
    return 0;
}

int main(int count, char **words) {
    int calls = count > 1 ? atoi(words[1]) : 1000;
    static task tasks[TASKS];
    static cell cells[TASKS];
    static arguments_of arguments[TASKS];
    _Atomic int32_t counts[1];
    for (uint32_t i = 0; i < TASKS; i++) {
        arguments[i] = (arguments_of){i, ~0u};
        tasks[i] = (task){step, &arguments[i], {IS_COUNT, 1, 1}, 1, 1, 8};
    }
    task_list good = {tasks, counts, cells, TASKS, 0};
    shared.threads = HELPERS + 1;
    shared.yield = yield;
    pthread_t helpers[HELPERS];
    for (int i = 0; i < HELPERS; i++) pthread_create(&helpers[i], NULL, help, NULL);
    int wrong = 0;
    for (int call = 0; call < calls && !wrong; call++) {
        uint32_t items = 1 + (uint32_t)(call * 37) % ITEMS, refuses = call % 10 == 9;
        atomic_store(&counts[0], (int32_t)items);
        arguments[5].bad = refuses ? 0 : ~0u;
        wrong = check(zrt_run(&shared, &good), refuses ? (int64_t)BAD_ROW << 32 | 5 : 0, items);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < HELPERS; i++) pthread_join(helpers[i], NULL);
    return wrong != 0;
}
