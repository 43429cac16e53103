// A task list is walked by the thread that calls zrt_run and by any helpers that are there.
//
// Progress is counted in items, never in threads that arrive: a task has ended when its items are done, whoever
// did them, so a helper that the system does not run delays nobody, unless it is inside a range, and then by
// that range only. The caller alone finishes any list. A claim carries the call's epoch: a helper that is
// late finds that it can claim nothing.
#include "task.h"

#define SPINS 2000  // pauses before giving the core away

static inline void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Some libraries set flush-to-zero for the whole process. Denormals are values here.
typedef uint64_t float_mode;
static inline float_mode ieee_mode(void) {
#if defined(__x86_64__)
    uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);  // all exceptions masked, to nearest, no flushing
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0));
    return before;
#endif
}
static inline void restore_mode(float_mode before) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((uint32_t)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(before));
#endif
}

// A counter of this CPU that rises at an even rate, read when all before it has ended; whoever looks at it later
// scales it by another clock.
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

static inline void note(const task_list *g, uint32_t place) {
    if (g->seen) atomic_store_explicit(&g->seen[place], ticks(), memory_order_relaxed);
}

typedef struct {
    uint32_t grid[3], items;
} extent;

static inline extent extent_of(const task *t, const _Atomic int32_t *counts) {
    extent e;
    for (int i = 0; i < 3; i++) {
        uint32_t dim = t->dims[i];
        e.grid[i] = dim & IS_COUNT ? (uint32_t)atomic_load_explicit(&counts[dim & ~IS_COUNT], memory_order_relaxed) : dim;
    }
    e.items = e.grid[0] * e.grid[1] * e.grid[2];
    return e;
}

// A share of what is left: long runs first, short ones at the end, so that all threads end together.
static inline uint32_t share(const task *t, uint32_t left, uint32_t threads) {
    uint32_t size = left / (2 * threads);
    if (size > t->most) size = t->most;
    if (size < t->least) size = t->least;
    return size < left ? size : left;
}

// The range that stands for [first, last) where order is shuffled; claims are then t->least items each.
static inline void shuffled(const task *t, uint32_t items, uint32_t seed, uint32_t *first, uint32_t *last) {
    uint32_t chunks = (items + t->least - 1) / t->least, chunk = *first / t->least;
    chunk = seed & 1 ? chunks - 1 - chunk : (chunk + seed / 2) % chunks;
    *first = chunk * t->least;
    *last = *first + t->least < items ? *first + t->least : items;
}

static inline int ended(pool *p, uint32_t epoch) {
    return atomic_load_explicit(&p->epoch, memory_order_acquire) != epoch ||
           atomic_load_explicit(&p->failed, memory_order_relaxed) || atomic_load_explicit(&p->stop, memory_order_relaxed);
}

// False where the call has ended, or was ended.
static int wait_for(pool *p, const task_list *g, uint32_t first, uint32_t last, uint32_t epoch) {
    for (uint32_t i = first; i < last; i++) {
        uint32_t items = extent_of(&g->tasks[i], g->counts).items;
        for (uint32_t spins = 0; atomic_load_explicit(&g->cells[i].done, memory_order_acquire) < items; spins++) {
            if (ended(p, epoch)) return 0;
            if (spins < SPINS) pause_core();
            else p->yield();
        }
    }
    return 1;
}

static void work(pool *p, const task_list *g, uint32_t epoch) {
    uint32_t waited = 0;  // tasks known to have ended
    for (uint32_t i = 0; i < g->count; i++) {
        const task *t = &g->tasks[i];
        cell *c = &g->cells[i];
        if (t->barrier) {
            if (!wait_for(p, g, waited, i, epoch)) return;
            waited = i;
        }
        if (ended(p, epoch)) return;
        extent e = extent_of(t, g->counts);
        uint64_t v = atomic_load_explicit(&c->next, memory_order_relaxed);
        for (;;) {
            if ((uint32_t)(v >> 32) != epoch) return;
            uint32_t first = (uint32_t)v;
            if (first >= e.items) break;
            uint32_t size = g->shuffle ? (e.items - first < t->least ? e.items - first : t->least) : share(t, e.items - first, p->threads);
            if (!atomic_compare_exchange_weak_explicit(&c->next, &v, v + size, memory_order_acquire, memory_order_relaxed)) continue;
            uint32_t last = first + size;
            if (!first) note(g, 2 + 2 * i);
            if (g->shuffle) shuffled(t, e.items, g->shuffle, &first, &last);
            int32_t why = t->run(t->arguments, e.grid, first, last);
            if (why) {
                uint64_t none = 0;
                atomic_compare_exchange_strong(&p->failed, &none, (uint64_t)(uint32_t)why << 32 | i);
            }
            // `size` items of the task have ended, whichever they were.
            // The reading comes before: once the task counts as ended, the next may begin.
            note(g, 3 + 2 * i);
            atomic_fetch_add_explicit(&c->done, size, memory_order_release);
            v = atomic_load_explicit(&c->next, memory_order_relaxed);
        }
    }
    wait_for(p, g, waited, g->count, epoch);
}

// 0; -1 where it was stopped; else why << 32 | task. One call at a time.
EXPORT int64_t zrt_run(pool *p, const task_list *g) {
    float_mode before = ieee_mode();
    uint32_t epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->failed, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < g->count; i++) {
        atomic_store_explicit(&g->cells[i].done, 0, memory_order_relaxed);
        atomic_store_explicit(&g->cells[i].next, (uint64_t)epoch << 32, memory_order_relaxed);
    }
    atomic_store_explicit(&p->running, g, memory_order_release);
    if (g->seen) {
        for (uint32_t i = 2; i < 2 * g->count + 2; i++) atomic_store_explicit(&g->seen[i], 0, memory_order_relaxed);
        note(g, 0);
    }
    atomic_store_explicit(&p->epoch, epoch, memory_order_release);
    work(p, g, epoch);
    note(g, 1);
    atomic_store(&p->running, (const task_list *)0);
    int64_t result = 0;
    uint64_t failed = atomic_load(&p->failed);
    if (failed) result = (int64_t)failed;
    else if (atomic_load(&p->stop)) result = -1;
    // The caller may write other counts now: a late helper that reads them must find nothing to claim nor to wait for.
    atomic_store(&p->epoch, epoch + 1);
    for (uint32_t i = 0; i < g->count; i++) atomic_store_explicit(&g->cells[i].next, (uint64_t)(epoch + 1) << 32 | 0xffffffffu, memory_order_release);
    // A call that was cut short: what its helpers still write is the caller's.
    if (result)
        while (atomic_load(&p->inside)) p->yield();
    restore_mode(before);
    return result;
}

// Help with calls until none has come for a while. Returns the epoch of the last.
EXPORT uint32_t zrt_help(pool *p, uint32_t seen) {
    float_mode before = ieee_mode();
    atomic_fetch_add(&p->inside, 1);
    for (uint32_t spins = 0; spins < SPINS; spins++) {
        uint32_t epoch = atomic_load_explicit(&p->epoch, memory_order_acquire);
        if (epoch == seen) {
            pause_core();
            continue;
        }
        seen = epoch;
        const task_list *g = atomic_load(&p->running);
        if (g) work(p, g, epoch);
        spins = 0;
    }
    atomic_fetch_sub(&p->inside, 1);
    restore_mode(before);
    return seen;
}

// What a call used may be freed once no helper can look at it any more.
EXPORT void zrt_settle(pool *p) {
    while (atomic_load(&p->inside)) p->yield();
}
