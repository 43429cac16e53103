// Kernels that show what the pool does: who ran what, and how often.
#include "task.h"

typedef struct {
    _Atomic uint32_t *ran;  // a count for each item
} counted;

// Each item once.
KERNEL(count) {
    const counted *g = arguments;
    for (uint32_t i = first; i < last; i++) atomic_fetch_add(&g->ran[i], 1);
    return OK;
}

typedef struct {
    const uint32_t *before;
    uint32_t *after;
    uint32_t wanted;  // of all items of the task before
    uint32_t items;
} chained;

// Items of this task read all of the one before: `after` becomes the sum of `before` over `wanted`, or 0.
KERNEL(chain) {
    const chained *g = arguments;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->items; i++) sum += g->before[i];
    for (uint32_t i = first; i < last; i++) g->after[i] = sum == (uint64_t)g->wanted * g->items ? g->wanted + 1 : 0;
    return OK;
}

typedef struct {
    _Atomic uint32_t *ran;
    uint32_t bad, why;
} failing;

KERNEL(fail) {
    const failing *g = arguments;
    for (uint32_t i = first; i < last; i++) {
        if (i == g->bad) return (int32_t)g->why;
        atomic_fetch_add(&g->ran[i], 1);
    }
    return OK;
}

typedef struct {
    const _Atomic uint32_t *go;
    _Atomic uint32_t *started;
} waiting;

// Runs until `go` is set.
KERNEL(wait) {
    const waiting *g = arguments;
    atomic_fetch_add(g->started, 1);
    while (!atomic_load(g->go)) continue;
    return OK;
}

typedef struct {
    uint32_t *mode;
    float *sum;
    const float *denormal;
} floating;

// How floats are computed where an item runs.
KERNEL(float_mode) {
    const floating *g = arguments;
    for (uint32_t i = first; i < last; i++) {
#if defined(__x86_64__)
        g->mode[i] = __builtin_ia32_stmxcsr();
#else
        g->mode[i] = 0;
#endif
        g->sum[i] = *g->denormal + *g->denormal;
        for (volatile int spin = 0; spin < 20000; spin++) continue;  // so that helpers come
    }
    return OK;
}

#if defined(__x86_64__)
EXPORT uint32_t get_float_mode(void) { return __builtin_ia32_stmxcsr(); }
EXPORT void set_float_mode(uint32_t mode) { __builtin_ia32_ldmxcsr(mode); }
#endif
