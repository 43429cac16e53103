// Contexts, buffers, streams, events, graphs and plans. The rules are those of zinc_rt/exec/*.py.
#define _GNU_SOURCE
#include "objects.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 1024
#define MOST_STEPS 4096
#define MOST_VARIANTS 65536
#define KEPT_FAILURES 32       // of a stream, the latest
#define SPINS 200              // looks at a fence before the thread sleeps
#define MAPPED_BYTES (1u << 20)  // from here on, memory is pages that are zero until they are touched
#define LONGEST_PAUSE_NS 1000000
#define RING_POLL_NS 1000000   // a ring's fence cannot wake the worker

// Errors --------------------------------------------------------------------------------------------------

static _Thread_local char last_error[512];

static const char *const STATUS_TEXTS[] = {
    "ZRT_OK", "ZRT_ERR_HANDLE", "ZRT_ERR_ARGUMENT", "ZRT_ERR_RANGE", "ZRT_ERR_NO_VARIANT", "ZRT_ERR_NOT_FOUND",
    "ZRT_ERR_EXISTS", "ZRT_ERR_IN_FLIGHT", "ZRT_ERR_IN_USE", "ZRT_ERR_TIMEOUT", "ZRT_ERR_MEMORY", "ZRT_ERR_FILE",
    "ZRT_ERR_FORMAT", "ZRT_ERR_VERSION", "ZRT_ERR_REFUSED", "ZRT_ERR_UNSUPPORTED", "ZRT_ERR_STATE", "ZRT_ERR_LOST",
};

const char *const zrt_refusals[] = {
    "", "a token is outside the vocabulary", "a position is outside the context", "a slot is outside its table",
    "the page table names a page outside the cache", "a row is outside its tensor", "an expert is outside its tensor",
    "an entry is outside its table, or named twice in one step", 0,
};

zrt_status zrt_fail(zrt_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(last_error, sizeof last_error, format, values);
    va_end(values);
    return status;
}

static zrt_status no_memory(void) { return zrt_fail(ZRT_ERR_MEMORY, "out of memory"); }

uint32_t zrt_abi_version(void) { return ZRT_ABI; }

const char *zrt_status_text(zrt_status status) {
    return (unsigned)status < sizeof STATUS_TEXTS / sizeof *STATUS_TEXTS ? STATUS_TEXTS[status] : "unknown status";
}

const char *zrt_last_error(void) { return last_error; }

zrt_status zrt_check_name(const char *name, const char *what) {
    if (!name) return zrt_fail(ZRT_ERR_ARGUMENT, "%s is a null pointer", what);
    size_t length = strnlen(name, NAME_BYTES);
    if (!length || length == NAME_BYTES)
        return zrt_fail(ZRT_ERR_ARGUMENT, "%s must have 1 to %d bytes", what, NAME_BYTES - 1);
    return ZRT_OK;
}

// Handles -------------------------------------------------------------------------------------------------
// kind << 56 | generation << 32 | slot + 1. A slot knows the one handle that is valid for it, so any other
// number is detected. Slots are never moved, so a lookup takes no lock.

#define CHUNK 1024
#define CHUNKS 1024

typedef struct {
    _Atomic uint64_t handle;  // 0: free
    object *object;
    uint32_t generation, next_free;
} slot;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(slot *) chunks[CHUNKS];
static uint32_t slots_used, first_free;  // as slot + 1, 0: none

static slot *slot_at(uint32_t number) {
    slot *chunk = number - 1 < CHUNK * CHUNKS ? atomic_load(&chunks[(number - 1) / CHUNK]) : 0;
    return chunk ? &chunk[(number - 1) % CHUNK] : 0;
}

static uint64_t take_handle(object *self, kind kind) {
    pthread_mutex_lock(&table_lock);
    uint32_t number = first_free;
    if (!number && slots_used < CHUNK * CHUNKS) {
        slot *chunk = slots_used % CHUNK ? atomic_load(&chunks[slots_used / CHUNK]) : calloc(CHUNK, sizeof(slot));
        if (chunk) {
            atomic_store(&chunks[slots_used / CHUNK], chunk);
            number = ++slots_used;
        }
    } else if (number) {
        first_free = slot_at(number)->next_free;
    }
    uint64_t handle = 0;
    if (number) {
        slot *slot = slot_at(number);
        slot->generation = (slot->generation + 1) & 0xffffff;
        slot->object = self;
        handle = (uint64_t)kind << 56 | (uint64_t)slot->generation << 32 | number;
        atomic_store(&slot->handle, handle);
    }
    pthread_mutex_unlock(&table_lock);
    return handle;
}

static void give_back_handle(uint64_t handle) {
    pthread_mutex_lock(&table_lock);
    slot *slot = slot_at((uint32_t)handle);
    atomic_store(&slot->handle, 0);
    slot->next_free = first_free;
    first_free = (uint32_t)handle;
    pthread_mutex_unlock(&table_lock);
}

void *zrt_find(uint64_t handle, kind kind) {
    static const char *const NAMES[] = {"", "context", "buffer", "stream", "event", "graph", "plan", "image", "capsule"};
    slot *slot = (uint32_t)handle ? slot_at((uint32_t)handle) : 0;
    if (slot && handle >> 56 == (uint64_t)kind && atomic_load(&slot->handle) == handle) return slot->object;
    zrt_fail(ZRT_ERR_HANDLE, "%#llx is not a %s: it was destroyed, or never created", (unsigned long long)handle, NAMES[kind]);
    return 0;
}

// Objects -------------------------------------------------------------------------------------------------

typedef struct {
    uint64_t submitted;
    _Atomic uint64_t done;
} timeline;

typedef struct job job;
struct job {
    job *next;
    uint64_t value, number;  // on the stream; over all streams
    uint64_t waits[STREAMS];
    const graph *graph;  // a replay of
    const variant *variant;
    uint8_t *target;     // a copy, a fill without `source`
    const uint8_t *source;
    uint64_t size_bytes;
};

typedef struct {
    uint64_t first, last;  // values of the work that failed
    zrt_status status;
    char message[256];
} failure;

typedef struct {
    object base;
    char *name;
    uint32_t index;
    int32_t priority;
    uint64_t waits[STREAMS];  // of the next submission, by stream
    job *first, *last;
    bool running;
    failure failures[KEPT_FAILURES];
    uint32_t failure_count;
    uint64_t reported;  // failures up to here were returned by a synchronise
    // of a ring
    bool is_ring;
    zrt_ring ring;
    uint32_t *wait_dwords;
    uint64_t fence_bias;  // the fence's value less the stream's
    uint64_t reported_dw;  // rptr on wptr's scale, never ahead of the truth
    uint64_t consumed_dw, last_fence_end_dw;
} stream;

typedef struct {
    object base;
    bool recorded;
    uint64_t stream, value;  // handle
} event;

typedef struct {
    zrt_graph graph;
    uint64_t key;
    zrt_stream stream;
    uint32_t *earlier;
    uint32_t earlier_count;
} step;

typedef struct {
    object base;
    step *steps;
    uint32_t count;
    uint32_t *order;        // of submission; null: to be sorted again
    uint64_t *values;       // of each step, of the last execution
    zrt_stream *streams;
    bool executed;
} plan;

struct context {
    object base;
    object *objects;
    stream *streams[STREAMS];
    timeline times[STREAMS];  // go on when another stream takes the place
    uint64_t numbers;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    pthread_t worker;
    bool has_worker, closing;
    void *library;
    const char *kernels_id;
    int64_t (*run)(pool *, const task_list *);
    uint32_t (*help)(pool *, uint32_t);
    pool *pool;
    pthread_t *helpers;
    uint32_t helper_count, calls;
    pthread_mutex_t help_lock;
    pthread_cond_t help_wanted;
    bool help_closing;
};

void *zrt_new(context *owner, kind kind, size_t size, void (*destroy)(object *)) {
    object *self = calloc(1, size);
    if (!self || !(self->handle = take_handle(self, kind))) {
        free(self);
        no_memory();
        return 0;
    }
    self->context = owner;
    self->destroy = destroy;
    if (owner) {
        self->next = owner->objects;
        if (self->next) self->next->previous = self;
        owner->objects = self;
    }
    return self;
}

void zrt_drop(object *self) {
    context *owner = self->context;
    if (owner) {
        if (self->previous) self->previous->next = self->next;
        else owner->objects = self->next;
        if (self->next) self->next->previous = self->previous;
    }
    give_back_handle(self->handle);
    if (self->destroy) self->destroy(self);
    free(self);
}

// Time ----------------------------------------------------------------------------------------------------

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t deadline_after(uint64_t timeout_ns) {
    uint64_t now = now_ns(), most = INT64_MAX;
    return timeout_ns < most - now ? now + timeout_ns : most;
}

static bool wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline) {
    struct timespec at = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
    return pthread_cond_timedwait(condition, lock, &at) != ETIMEDOUT;
}

static bool init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return false;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int problem = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return !problem;
}

// Failures ------------------------------------------------------------------------------------------------

// Called with the context's lock held.
static void note_failure(stream *self, uint64_t first, uint64_t last, zrt_status status, const char *message) {
    if (self->failure_count == KEPT_FAILURES)
        memmove(self->failures, self->failures + 1, --self->failure_count * sizeof *self->failures);
    failure *entry = &self->failures[self->failure_count++];
    *entry = (failure){.first = first, .last = last, .status = status};
    snprintf(entry->message, sizeof entry->message, "%s", message);
}

static const failure *failure_of(const stream *self, uint64_t value) {
    for (uint32_t i = self->failure_count; i--;)
        if (self->failures[i].first <= value && value <= self->failures[i].last) return &self->failures[i];
    return 0;
}

// Rings ---------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
// backends/amd/publish.py's function: copy, store fence, wptr, store fence, doorbell.
extern uint64_t publish(const void *target, uint64_t wptr, const uint32_t *source, uint64_t count);
#define HAS_PUBLISH 1
#else
#define HAS_PUBLISH 0
static uint64_t publish(const void *target, uint64_t wptr, const uint32_t *source, uint64_t count) {
    (void)target, (void)source;
    return wptr + count;
}
#endif

// Look at the fence. A value that no submission wrote loses the ring: what is pending ends with an error. `locked`:
// the caller holds the context's lock.
static uint64_t read_fence(stream *self, bool locked) {
    timeline *time = &self->base.context->times[self->index];
    uint64_t done = atomic_load_explicit(&time->done, memory_order_acquire);
    if (done == time->submitted) return done;
    uint64_t word = __atomic_load_n(self->ring.fence, __ATOMIC_ACQUIRE), value = word - self->fence_bias;
    if (value - done <= time->submitted - done) {
        atomic_store_explicit(&time->done, value, memory_order_release);
        return value;
    }
    char message[256];
    snprintf(message, sizeof message, "stream %s: the fence's memory holds %#llx, but %#llx is the last value submitted",
             self->name, (unsigned long long)word, (unsigned long long)(time->submitted + self->fence_bias));
    if (!locked) pthread_mutex_lock(&self->base.context->lock);
    note_failure(self, done + 1, UINT64_MAX, ZRT_ERR_LOST, message);
    atomic_store_explicit(&time->done, time->submitted, memory_order_release);
    if (!locked) pthread_mutex_unlock(&self->base.context->lock);
    return time->submitted;
}

static uint64_t poll_ring(stream *self) { return read_fence(self, false); }

// Call `look` until it returns true, or false after the deadline.
static bool poll_until(stream *self, uint64_t argument, bool (*look)(stream *, uint64_t), uint64_t timeout_ns) {
    for (uint32_t i = 0; i < SPINS; i++)
        if (look(self, argument)) return true;
    uint64_t deadline = deadline_after(timeout_ns);
    for (long pause = 1000; !look(self, argument);) {
        if (now_ns() >= deadline) return look(self, argument);
        struct timespec time = {0, pause};
        nanosleep(&time, 0);
        if (pause < LONGEST_PAUSE_NS) pause *= 2;
    }
    return true;
}

static bool is_reached(stream *self, uint64_t value) { return poll_ring(self) >= value; }

static bool has_room(stream *self, uint64_t end_dw) {
    zrt_ring *ring = &self->ring;
    uint32_t rptr = __atomic_load_n(ring->rptr, __ATOMIC_ACQUIRE);
    // From where it was last: fences may have let wptr run more than a ring past it.
    uint64_t reported = self->reported_dw + ((rptr - (uint32_t)self->reported_dw) & (ring->ring_dw - 1));
    if (reported <= ring->wptr_dw) self->reported_dw = reported;
    if (self->reported_dw > self->consumed_dw) self->consumed_dw = self->reported_dw;
    bool idle = poll_ring(self) == self->base.context->times[self->index].submitted;
    if (idle && self->last_fence_end_dw > self->consumed_dw) self->consumed_dw = self->last_fence_end_dw;
    return end_dw - self->consumed_dw < ring->ring_dw;  // one dword stays free
}

// Waiting -------------------------------------------------------------------------------------------------

static bool is_done(context *owner, uint32_t index, uint64_t value) {
    if (atomic_load_explicit(&owner->times[index].done, memory_order_acquire) >= value) return true;
    stream *self = owner->streams[index];
    return self && self->is_ring && poll_ring(self) >= value;
}

static zrt_status wait_for_value(stream *self, uint64_t value, uint64_t timeout_ns) {
    context *owner = self->base.context;
    bool done = is_done(owner, self->index, value);
    if (!done && self->is_ring) {
        done = poll_until(self, value, is_reached, timeout_ns);
    } else if (!done) {
        uint64_t deadline = deadline_after(timeout_ns);
        pthread_mutex_lock(&owner->lock);
        while (!(done = atomic_load(&owner->times[self->index].done) >= value))
            if (!wait_until(&owner->finished, &owner->lock, deadline)) {
                done = atomic_load(&owner->times[self->index].done) >= value;
                break;
            }
        pthread_mutex_unlock(&owner->lock);
    }
    if (!done)
        return zrt_fail(ZRT_ERR_TIMEOUT, "stream %s: submission %llu has not finished within %.3f s", self->name,
                        (unsigned long long)value, (double)timeout_ns / 1e9);
    return ZRT_OK;
}

static zrt_status result_of(stream *self, uint64_t value) {
    pthread_mutex_lock(&self->base.context->lock);
    const failure *found = failure_of(self, value);
    zrt_status status = found ? zrt_fail(found->status, "%s", found->message) : ZRT_OK;
    pthread_mutex_unlock(&self->base.context->lock);
    return status;
}

bool zrt_is_busy(buffer *self) {
    for (uint32_t i = 0; i < STREAMS; i++)
        if (self->uses[i] && !is_done(self->base.context, i, self->uses[i])) return true;
    return false;
}

// The worker: one thread runs the submissions of all streams that are no rings --------------------------------

static job *take_job(context *owner, stream **whose, bool *polls) {
    job *best = 0;
    for (uint32_t i = 0; i < STREAMS; i++) {
        stream *self = owner->streams[i];
        if (!self || !self->first || self->running) continue;
        bool ready = true;
        for (uint32_t j = 0; j < STREAMS && ready; j++) {
            if (atomic_load_explicit(&owner->times[j].done, memory_order_acquire) >= self->first->waits[j]) continue;
            ready = false;
            if (owner->streams[j] && owner->streams[j]->is_ring) *polls = true;
        }
        bool better = !best || self->priority > (*whose)->priority ||
                      (self->priority == (*whose)->priority && self->first->number < best->number);
        if (ready && better) {
            best = self->first;
            *whose = self;
        }
    }
    return best;
}

static zrt_status run_tasks(context *owner, const job *job, char *message, size_t size) {
    pthread_mutex_lock(&owner->help_lock);
    owner->calls++;
    pthread_cond_broadcast(&owner->help_wanted);
    pthread_mutex_unlock(&owner->help_lock);
    int64_t result = owner->run(owner->pool, job->variant->program.tasks);
    if (!result) return ZRT_OK;
    if (result < 0) {
        snprintf(message, size, "graph %s: the context was destroyed before this replay ended", job->graph->name);
        return ZRT_ERR_STATE;
    }
    uint64_t why = (uint64_t)result >> 32, known = sizeof zrt_refusals / sizeof *zrt_refusals - 1;
    snprintf(message, size, "graph %s, task %u: %s", job->graph->name, (uint32_t)result,
             why < known ? zrt_refusals[why] : "refused");
    return ZRT_ERR_REFUSED;
}

static zrt_status run_job(context *owner, job *job, char *message, size_t size) {
    zrt_status status = ZRT_OK;
    pthread_mutex_lock(&owner->lock);
    for (uint32_t i = 0; i < STREAMS && !status; i++) {
        const failure *found = job->waits[i] && owner->streams[i] ? failure_of(owner->streams[i], job->waits[i]) : 0;
        if (!found) continue;
        status = found->status;
        snprintf(message, size, "%s", found->message);
    }
    pthread_mutex_unlock(&owner->lock);
    if (status) return status;
    if (job->variant) return run_tasks(owner, job, message, size);
    if (job->source) memcpy(job->target, job->source, job->size_bytes);
    else memset(job->target, 0, job->size_bytes);
    return ZRT_OK;
}

// End the first job of a stream and, where it failed, those after it. With the lock held.
static void end_jobs(stream *self, zrt_status status, const char *message) {
    timeline *time = &self->base.context->times[self->index];
    uint64_t first = self->first->value, last = first;
    do {
        job *ended = self->first;
        last = ended->value;
        self->first = ended->next;
        free(ended);
    } while (status && self->first);
    if (!self->first) self->last = 0;
    if (status) note_failure(self, first, last, status, message);
    atomic_store_explicit(&time->done, last, memory_order_release);
}

static void *work(void *argument) {
    context *owner = argument;
    pthread_mutex_lock(&owner->lock);
    while (!owner->closing) {
        stream *self = 0;
        bool polls = false;
        job *job = take_job(owner, &self, &polls);
        if (!job) {
            if (!polls) pthread_cond_wait(&owner->work, &owner->lock);
            else {
                wait_until(&owner->work, &owner->lock, deadline_after(RING_POLL_NS));
                for (uint32_t i = 0; i < STREAMS; i++)
                    if (owner->streams[i] && owner->streams[i]->is_ring) read_fence(owner->streams[i], true);
            }
            continue;
        }
        self->running = true;
        pthread_mutex_unlock(&owner->lock);
        char message[256];
        zrt_status status = run_job(owner, job, message, sizeof message);
        pthread_mutex_lock(&owner->lock);
        self->running = false;
        end_jobs(self, status, message);
        pthread_cond_broadcast(&owner->finished);
    }
    pthread_mutex_unlock(&owner->lock);
    return 0;
}

static void *help(void *argument) {
    context *owner = argument;
    uint32_t seen = 0, calls = 0;
    for (;;) {
        pthread_mutex_lock(&owner->help_lock);
        while (owner->calls == calls && !owner->help_closing) pthread_cond_wait(&owner->help_wanted, &owner->help_lock);
        bool closing = owner->help_closing;
        calls = owner->calls;
        pthread_mutex_unlock(&owner->help_lock);
        if (closing) return 0;
        seen = owner->help(owner->pool, seen);
    }
}

// Contexts ------------------------------------------------------------------------------------------------

static void yield_core(void) { sched_yield(); }

static uint32_t count_cpus(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return count > 0 ? (uint32_t)count : 1;
}

static zrt_status load_kernels(context *self, const char *path) {
    if (!(self->library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) return zrt_fail(ZRT_ERR_FILE, "kernels: %s", dlerror());
    *(void **)&self->run = dlsym(self->library, "zrt_run");
    *(void **)&self->help = dlsym(self->library, "zrt_help");
    const char *id = dlsym(self->library, "zrt_sources");
    if (!self->run || !self->help || !id)
        return zrt_fail(ZRT_ERR_FORMAT, "%s is not a kernel library of this version: it lacks zrt_run, zrt_help or zrt_sources", path);
    self->kernels_id = id;
    return ZRT_OK;
}

static zrt_status start_threads(context *self, uint32_t threads) {
    self->pool = (pool *)zrt_allocate(sizeof(pool));
    self->helpers = calloc(threads, sizeof *self->helpers);
    if (!self->pool || !self->helpers) return no_memory();
    self->pool->threads = threads;
    self->pool->yield = yield_core;
    while (self->helper_count + 1 < threads) {
        if (pthread_create(&self->helpers[self->helper_count], 0, help, self))
            return zrt_fail(ZRT_ERR_MEMORY, "cannot start %u threads", threads);
        self->helper_count++;
    }
    return ZRT_OK;
}

static void destroy_context(object *base) {
    context *self = (context *)base;
    pthread_mutex_lock(&self->lock);
    self->closing = true;
    if (self->pool) atomic_store(&self->pool->stop, 1);
    pthread_cond_broadcast(&self->work);
    pthread_mutex_unlock(&self->lock);
    if (self->has_worker) pthread_join(self->worker, 0);
    pthread_mutex_lock(&self->help_lock);
    self->help_closing = true;
    pthread_cond_broadcast(&self->help_wanted);
    pthread_mutex_unlock(&self->help_lock);
    for (uint32_t i = 0; i < self->helper_count; i++) pthread_join(self->helpers[i], 0);
    while (self->objects) zrt_drop(self->objects);
    free(self->helpers);
    if (self->pool) zrt_release((uint8_t *)self->pool, sizeof(pool));
    if (self->library) dlclose(self->library);
    pthread_cond_destroy(&self->help_wanted);
    pthread_mutex_destroy(&self->help_lock);
    pthread_cond_destroy(&self->finished);
    pthread_cond_destroy(&self->work);
    pthread_mutex_destroy(&self->lock);
}

zrt_status zrt_context_create(const zrt_context_options *options, zrt_context *handle) {
    if (!options || !handle) return zrt_fail(ZRT_ERR_ARGUMENT, "a context needs options and a place for its handle");
    if (options->size_bytes != sizeof *options)
        return zrt_fail(ZRT_ERR_VERSION, "zrt_context_options has %u bytes, expected %zu", options->size_bytes, sizeof *options);
    uint32_t threads = options->threads ? options->threads : count_cpus();
    if (threads > MOST_THREADS) return zrt_fail(ZRT_ERR_ARGUMENT, "%u threads, expected at most %d", threads, MOST_THREADS);
    context *self = zrt_new(0, CONTEXT, sizeof *self, destroy_context);
    if (!self) return ZRT_ERR_MEMORY;
    pthread_mutex_init(&self->lock, 0);
    pthread_mutex_init(&self->help_lock, 0);
    zrt_status status = ZRT_OK;
    if (!init_condition(&self->work) || !init_condition(&self->finished) || !init_condition(&self->help_wanted)) status = no_memory();
    if (!status && options->kernels) status = load_kernels(self, options->kernels);
    if (!status && options->kernels) status = start_threads(self, threads);
    if (!status && pthread_create(&self->worker, 0, work, self)) status = zrt_fail(ZRT_ERR_MEMORY, "cannot start a thread");
    else self->has_worker = !status;
    if (status) zrt_drop(&self->base);
    else *handle = self->base.handle;
    return status;
}

zrt_status zrt_context_destroy(zrt_context handle) {
    context *self = zrt_find(handle, CONTEXT);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_drop(&self->base);
    return ZRT_OK;
}

void *zrt_find_kernel(context *self, const char *name) {
    char symbol[NAME_BYTES + 4];
    if (!self->library || snprintf(symbol, sizeof symbol, "zrt_%s", name) >= (int)sizeof symbol) return 0;
    return dlsym(self->library, symbol);
}

const char *zrt_kernels_id(context *self) { return self->kernels_id; }

// Buffers -------------------------------------------------------------------------------------------------

uint8_t *zrt_allocate(uint64_t size_bytes) {
    void *memory = 0;
    if (size_bytes >> 47) return 0;
    if (size_bytes >= MAPPED_BYTES) {
        memory = mmap(0, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? 0 : memory;
    }
    if (posix_memalign(&memory, 64, size_bytes ? size_bytes : 1)) return 0;
    return memset(memory, 0, size_bytes ? size_bytes : 1);
}

void zrt_release(uint8_t *memory, uint64_t size_bytes) {
    if (memory && size_bytes >= MAPPED_BYTES) munmap(memory, size_bytes);
    else free(memory);
}

static void destroy_buffer(object *base) {
    buffer *self = (buffer *)base;
    if (self->release) self->release(self->memory, self->size_bytes);
    free(self->name);
}

buffer *zrt_new_buffer(context *owner, const char *name, uint8_t *memory, uint64_t size_bytes, void (*release)(uint8_t *, uint64_t)) {
    buffer *self = zrt_new(owner, BUFFER, sizeof *self, destroy_buffer);
    if (!self) return 0;
    if (!(self->name = strdup(name))) {
        zrt_drop(&self->base);
        no_memory();
        return 0;
    }
    self->memory = memory;
    self->size_bytes = size_bytes;
    self->release = release;
    return self;
}

zrt_status zrt_buffer_create(zrt_context context_handle, const char *name, uint64_t size_bytes, zrt_buffer *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle || !size_bytes) return zrt_fail(ZRT_ERR_ARGUMENT, "a buffer needs a size and a place for its handle");
    zrt_status status = zrt_check_name(name, "the buffer's name");
    if (status) return status;
    uint8_t *memory = zrt_allocate(size_bytes);
    if (!memory) return zrt_fail(ZRT_ERR_MEMORY, "no memory for buffer %s of %llu bytes", name, (unsigned long long)size_bytes);
    buffer *self = zrt_new_buffer(owner, name, memory, size_bytes, zrt_release);
    if (!self) {
        zrt_release(memory, size_bytes);
        return ZRT_ERR_MEMORY;
    }
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_buffer_wrap(zrt_context context_handle, const char *name, void *memory, uint64_t size_bytes, zrt_buffer *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle || !memory || !size_bytes || size_bytes > UINTPTR_MAX - (uintptr_t)memory)
        return zrt_fail(ZRT_ERR_ARGUMENT, "a wrapped buffer needs memory, its size and a place for the handle");
    zrt_status status = zrt_check_name(name, "the buffer's name");
    if (status) return status;
    buffer *self = zrt_new_buffer(owner, name, memory, size_bytes, 0);
    if (!self) return ZRT_ERR_MEMORY;
    *handle = self->base.handle;
    return ZRT_OK;
}

static zrt_status in_flight(const buffer *self) {
    return zrt_fail(ZRT_ERR_IN_FLIGHT, "buffer %s: work that uses it has not finished; wait for its stream first", self->name);
}

zrt_status zrt_buffer_destroy(zrt_buffer handle) {
    buffer *self = zrt_find(handle, BUFFER);
    if (!self) return ZRT_ERR_HANDLE;
    if (self->bound) return zrt_fail(ZRT_ERR_IN_USE, "buffer %s: %u ports are bound to it; remove their programs first", self->name, self->bound);
    if (zrt_is_busy(self)) return in_flight(self);
    zrt_drop(&self->base);
    return ZRT_OK;
}

zrt_status zrt_buffer_size(zrt_buffer handle, uint64_t *size_bytes) {
    buffer *self = zrt_find(handle, BUFFER);
    if (!self) return ZRT_ERR_HANDLE;
    if (!size_bytes) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the size of buffer %s", self->name);
    *size_bytes = self->size_bytes;
    return ZRT_OK;
}

static zrt_status check_range(const buffer *self, uint64_t offset_bytes, uint64_t size_bytes, bool writes) {
    if (offset_bytes > self->size_bytes || size_bytes > self->size_bytes - offset_bytes)
        return zrt_fail(ZRT_ERR_RANGE, "%llu bytes at offset %llu exceed the %llu bytes of buffer %s", (unsigned long long)size_bytes,
                        (unsigned long long)offset_bytes, (unsigned long long)self->size_bytes, self->name);
    if (writes && self->constant) return zrt_fail(ZRT_ERR_UNSUPPORTED, "buffer %s is a file's memory, which cannot be written", self->name);
    return ZRT_OK;
}

static zrt_status check_host_access(buffer *self, uint64_t offset_bytes, const void *data, uint64_t size_bytes, bool writes) {
    if (!data && size_bytes) return zrt_fail(ZRT_ERR_ARGUMENT, "buffer %s: the data is a null pointer", self->name);
    zrt_status status = check_range(self, offset_bytes, size_bytes, writes);
    if (status) return status;
    return zrt_is_busy(self) ? in_flight(self) : ZRT_OK;
}

zrt_status zrt_buffer_write(zrt_buffer handle, uint64_t offset_bytes, const void *data, uint64_t size_bytes) {
    buffer *self = zrt_find(handle, BUFFER);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = check_host_access(self, offset_bytes, data, size_bytes, true);
    if (!status && size_bytes) memcpy(self->memory + offset_bytes, data, size_bytes);
    return status;
}

zrt_status zrt_buffer_read(zrt_buffer handle, uint64_t offset_bytes, void *data, uint64_t size_bytes) {
    buffer *self = zrt_find(handle, BUFFER);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = check_host_access(self, offset_bytes, data, size_bytes, false);
    if (!status && size_bytes) memcpy(data, self->memory + offset_bytes, size_bytes);
    return status;
}

zrt_status zrt_buffer_map(zrt_buffer handle, uint64_t offset_bytes, uint64_t size_bytes, void **memory) {
    buffer *self = zrt_find(handle, BUFFER);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = check_host_access(self, offset_bytes, memory, size_bytes ? size_bytes : 1, false);
    if (!status) *memory = self->memory + offset_bytes;
    return status;
}

// Submission ----------------------------------------------------------------------------------------------

static zrt_status submit_job(stream *self, job content) {
    context *owner = self->base.context;
    job *job = malloc(sizeof *job);
    if (!job) return no_memory();
    *job = content;
    memcpy(job->waits, self->waits, sizeof job->waits);
    memset(self->waits, 0, sizeof self->waits);
    pthread_mutex_lock(&owner->lock);
    job->value = ++owner->times[self->index].submitted;
    job->number = ++owner->numbers;
    if (self->last) self->last->next = job;
    else self->first = job;
    self->last = job;
    pthread_cond_signal(&owner->work);
    pthread_mutex_unlock(&owner->lock);
    return ZRT_OK;
}

static void publish_dwords(zrt_ring *ring, const uint32_t *dwords, uint32_t count) {
    const struct { uint32_t *ring; uint64_t mask; uint64_t *wptr, *doorbell; } target = {ring->ring, ring->ring_dw - 1, ring->wptr, ring->doorbell};
    ring->wptr_dw = publish(&target, ring->wptr_dw, dwords, count);
}

// Publish a program behind packets that wait for other rings. What no packet can wait for, the host waits for.
static zrt_status submit_dwords(stream *self, const zrt_program *program) {
    context *owner = self->base.context;
    zrt_ring *ring = &self->ring;
    uint32_t waits = 0;
    for (uint32_t i = 0; i < STREAMS; i++) {
        stream *other = owner->streams[i];
        if (!self->waits[i] || !other || (is_done(owner, i, self->waits[i]) && !failure_of(other, self->waits[i]))) continue;
        if (other->is_ring && ring->wait_dwords && !failure_of(other, self->waits[i])) {
            waits++;
            continue;
        }
        zrt_status status = wait_for_value(other, self->waits[i], ring->full_timeout_ns);
        if (!status) status = result_of(other, self->waits[i]);
        if (status) return status;
    }
    uint32_t count = waits * ring->wait_dw + program->dword_count;
    uint64_t end_dw = ring->wptr_dw + count;
    if (count >= ring->ring_dw)
        return zrt_fail(ZRT_ERR_RANGE, "stream %s: %u dwords do not fit in a ring of %u", self->name, count, ring->ring_dw);
    if (!has_room(self, end_dw) && !poll_until(self, end_dw, has_room, ring->full_timeout_ns))
        return zrt_fail(ZRT_ERR_TIMEOUT, "stream %s: no room for %u dwords within %.3f s", self->name, count, (double)ring->full_timeout_ns / 1e9);
    timeline *time = &owner->times[self->index];
    const failure *lost = failure_of(self, time->submitted + 1);
    if (lost) return zrt_fail(lost->status, "%s", lost->message);
    for (uint32_t i = 0; i < STREAMS && waits; i++) {
        stream *other = owner->streams[i];
        if (!self->waits[i] || !other || !other->is_ring) continue;
        uint32_t *packet = self->wait_dwords;
        uint64_t value = self->waits[i] + other->fence_bias;
        memcpy(packet + ring->wait_address_at, &other->ring.fence_va, 8);
        memcpy(packet + ring->wait_value_at, &value, 8);
        publish_dwords(ring, packet, ring->wait_dw);
    }
    uint64_t value = time->submitted + 1 + self->fence_bias;
    memcpy((void *)(program->dwords + program->fence_at), &value, 8);  // our copy
    self->last_fence_end_dw = ring->wptr_dw + program->fence_end;
    time->submitted++;  // before the doorbell: the fence may be written at once
    publish_dwords(ring, program->dwords, program->dword_count);
    memset(self->waits, 0, sizeof self->waits);
    return ZRT_OK;
}

static void use_buffer(buffer *self, const stream *stream) {
    self->uses[stream->index] = self->base.context->times[stream->index].submitted;
}

zrt_status zrt_buffer_copy(zrt_buffer target_handle, uint64_t target_offset_bytes, zrt_buffer source_handle,
                           uint64_t source_offset_bytes, uint64_t size_bytes, zrt_stream stream_handle) {
    buffer *target = zrt_find(target_handle, BUFFER), *source = target ? zrt_find(source_handle, BUFFER) : 0;
    stream *on = source ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (target->base.context != source->base.context || target->base.context != on->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "copy %s to %s: the objects belong to different contexts", source->name, target->name);
    zrt_status status = check_range(source, source_offset_bytes, size_bytes, false);
    if (!status) status = check_range(target, target_offset_bytes, size_bytes, true);
    if (status) return status;
    uint8_t *to = target->memory + target_offset_bytes, *from = source->memory + source_offset_bytes;
    if (size_bytes && to < from + size_bytes && from < to + size_bytes)
        return zrt_fail(ZRT_ERR_RANGE, "copy %s to %s: source and target overlap; copy through another buffer", source->name, target->name);
    if (on->is_ring) return zrt_fail(ZRT_ERR_UNSUPPORTED, "stream %s is a ring; adopt a program that copies", on->name);
    if ((status = submit_job(on, (job){.target = to, .source = from, .size_bytes = size_bytes}))) return status;
    use_buffer(source, on);
    use_buffer(target, on);
    return ZRT_OK;
}

zrt_status zrt_buffer_fill(zrt_buffer handle, uint64_t offset_bytes, uint64_t size_bytes, zrt_stream stream_handle) {
    buffer *self = zrt_find(handle, BUFFER);
    stream *on = self ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (self->base.context != on->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "fill of %s: the stream belongs to another context", self->name);
    zrt_status status = check_range(self, offset_bytes, size_bytes, true);
    if (status) return status;
    if (on->is_ring) return zrt_fail(ZRT_ERR_UNSUPPORTED, "stream %s is a ring; adopt a program that fills", on->name);
    if ((status = submit_job(on, (job){.target = self->memory + offset_bytes, .size_bytes = size_bytes}))) return status;
    use_buffer(self, on);
    return ZRT_OK;
}

// Streams and events --------------------------------------------------------------------------------------

static void destroy_stream(object *base) {
    stream *self = (stream *)base;
    while (self->first) {
        job *next = self->first->next;
        free(self->first);
        self->first = next;
    }
    free(self->wait_dwords);
    free(self->name);
}

static stream *new_stream(context *owner, const char *name, int32_t priority) {
    uint32_t index = 0;
    while (index < STREAMS && owner->streams[index]) index++;
    if (index == STREAMS) {
        zrt_fail(ZRT_ERR_MEMORY, "a context has at most %d streams; destroy one first", STREAMS);
        return 0;
    }
    stream *self = zrt_new(owner, STREAM, sizeof *self, destroy_stream);
    if (!self) return 0;
    if (!(self->name = strdup(name))) {
        zrt_drop(&self->base);
        no_memory();
        return 0;
    }
    self->index = index;
    self->priority = priority;
    pthread_mutex_lock(&owner->lock);
    owner->streams[index] = self;
    pthread_mutex_unlock(&owner->lock);
    return self;
}

zrt_status zrt_stream_create(zrt_context context_handle, const char *name, int32_t priority, zrt_stream *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the stream's handle");
    zrt_status status = zrt_check_name(name, "the stream's name");
    if (status) return status;
    stream *self = new_stream(owner, name, priority);
    if (!self) return ZRT_ERR_MEMORY;
    *handle = self->base.handle;
    return ZRT_OK;
}

static zrt_status check_ring(const zrt_ring *ring) {
    if (ring->size_bytes != sizeof *ring)
        return zrt_fail(ZRT_ERR_VERSION, "zrt_ring has %u bytes, expected %zu", ring->size_bytes, sizeof *ring);
    if (!HAS_PUBLISH) return zrt_fail(ZRT_ERR_UNSUPPORTED, "rings need an x86-64 host: no store fence is known for this one");
    if (!ring->ring || !ring->wptr || !ring->doorbell || !ring->rptr || !ring->fence)
        return zrt_fail(ZRT_ERR_ARGUMENT, "a ring needs its memory, wptr, doorbell, rptr and fence");
    if (ring->ring_dw < 2 || ring->ring_dw & (ring->ring_dw - 1))
        return zrt_fail(ZRT_ERR_ARGUMENT, "the ring has %u dwords; expected a power of two", ring->ring_dw);
    if (((uintptr_t)ring->wptr | (uintptr_t)ring->doorbell | (uintptr_t)ring->fence) % 8)
        return zrt_fail(ZRT_ERR_ARGUMENT, "wptr, doorbell and fence must be at multiples of 8 bytes");
    if (ring->wait_dwords && (ring->wait_dw > 64 || ring->wait_address_at + 2ull > ring->wait_dw || ring->wait_value_at + 2ull > ring->wait_dw))
        return zrt_fail(ZRT_ERR_ARGUMENT, "a wait packet of %u dwords (at most 64) does not have its address at %u and its value at %u",
                        ring->wait_dw, ring->wait_address_at, ring->wait_value_at);
    uint64_t word = __atomic_load_n(ring->fence, __ATOMIC_ACQUIRE);
    if (word != ring->fence_value)
        return zrt_fail(ZRT_ERR_IN_FLIGHT, "the fence holds %llu, expected %llu: the queue must be idle", (unsigned long long)word,
                        (unsigned long long)ring->fence_value);
    return ZRT_OK;
}

zrt_status zrt_stream_open_ring(zrt_context context_handle, const char *name, const zrt_ring *ring, zrt_stream *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!ring || !handle) return zrt_fail(ZRT_ERR_ARGUMENT, "a ring stream needs a ring and a place for its handle");
    zrt_status status = zrt_check_name(name, "the stream's name");
    if (!status) status = check_ring(ring);
    if (status) return status;
    uint32_t *packet = 0;
    if (ring->wait_dwords && ring->wait_dw) {
        if (!(packet = malloc(4 * ring->wait_dw))) return no_memory();
        memcpy(packet, ring->wait_dwords, 4 * ring->wait_dw);
    }
    stream *self = new_stream(owner, name, 0);
    if (!self) {
        free(packet);
        return ZRT_ERR_MEMORY;
    }
    self->ring = *ring;
    self->wait_dwords = packet;
    self->fence_bias = ring->fence_value - owner->times[self->index].submitted;
    self->consumed_dw = self->last_fence_end_dw = ring->wptr_dw;
    self->reported_dw = ring->wptr_dw - (((uint32_t)ring->wptr_dw - *ring->rptr) & (ring->ring_dw - 1));
    self->is_ring = true;
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_ring_position(zrt_stream handle, uint64_t *wptr_dw, uint64_t *fence_value) {
    stream *self = zrt_find(handle, STREAM);
    if (!self) return ZRT_ERR_HANDLE;
    if (!wptr_dw || !fence_value) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the position of stream %s", self->name);
    if (!self->is_ring) return zrt_fail(ZRT_ERR_UNSUPPORTED, "stream %s is not a ring", self->name);
    *wptr_dw = self->ring.wptr_dw;
    *fence_value = self->base.context->times[self->index].submitted + self->fence_bias;
    return ZRT_OK;
}

zrt_status zrt_stream_destroy(zrt_stream handle) {
    stream *self = zrt_find(handle, STREAM);
    if (!self) return ZRT_ERR_HANDLE;
    context *owner = self->base.context;
    if (!is_done(owner, self->index, owner->times[self->index].submitted))
        return zrt_fail(ZRT_ERR_IN_FLIGHT, "stream %s has work that has not finished; synchronise it first", self->name);
    pthread_mutex_lock(&owner->lock);
    owner->streams[self->index] = 0;
    pthread_mutex_unlock(&owner->lock);
    zrt_drop(&self->base);
    return ZRT_OK;
}

static void add_wait(stream *self, uint32_t index, uint64_t value) {
    if (index != self->index && value > self->waits[index]) self->waits[index] = value;
}

zrt_status zrt_stream_wait(zrt_stream handle, zrt_event event_handle) {
    stream *self = zrt_find(handle, STREAM);
    event *point = self ? zrt_find(event_handle, EVENT) : 0;
    if (!point) return ZRT_ERR_HANDLE;
    if (point->base.context != self->base.context) return zrt_fail(ZRT_ERR_HANDLE, "stream %s: the event belongs to another context", self->name);
    if (!point->recorded) return zrt_fail(ZRT_ERR_STATE, "stream %s waits on an event that no stream recorded; record it first", self->name);
    stream *other = zrt_find(point->stream, STREAM);  // where it was destroyed, its work has finished
    if (other) add_wait(self, other->index, point->value);
    return ZRT_OK;
}

zrt_status zrt_stream_synchronize(zrt_stream handle, uint64_t timeout_ns) {
    stream *self = zrt_find(handle, STREAM);
    if (!self) return ZRT_ERR_HANDLE;
    context *owner = self->base.context;
    zrt_status status = wait_for_value(self, owner->times[self->index].submitted, timeout_ns);
    if (status) return status;
    pthread_mutex_lock(&owner->lock);
    for (uint32_t i = 0; i < self->failure_count && !status; i++) {
        const failure *found = &self->failures[i];
        if (found->last <= self->reported) continue;
        if (found->last != UINT64_MAX) self->reported = found->last;  // a ring stays lost
        status = zrt_fail(found->status, "%s", found->message);
    }
    pthread_mutex_unlock(&owner->lock);
    return status;
}

zrt_status zrt_event_create(zrt_context context_handle, zrt_event *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the event's handle");
    event *self = zrt_new(owner, EVENT, sizeof *self, 0);
    if (!self) return ZRT_ERR_MEMORY;
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_event_destroy(zrt_event handle) {
    event *self = zrt_find(handle, EVENT);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_drop(&self->base);
    return ZRT_OK;
}

zrt_status zrt_event_record(zrt_event handle, zrt_stream stream_handle) {
    event *self = zrt_find(handle, EVENT);
    stream *on = self ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (on->base.context != self->base.context) return zrt_fail(ZRT_ERR_HANDLE, "stream %s belongs to another context than the event", on->name);
    self->recorded = true;
    self->stream = stream_handle;
    self->value = on->base.context->times[on->index].submitted;
    return ZRT_OK;
}

// The stream of a recorded event; null without an error where it was destroyed.
static zrt_status find_recorded(zrt_event handle, event **point, stream **on) {
    if (!(*point = zrt_find(handle, EVENT))) return ZRT_ERR_HANDLE;
    if (!(*point)->recorded) return zrt_fail(ZRT_ERR_STATE, "no stream recorded this event; record it first");
    *on = zrt_find((*point)->stream, STREAM);
    return ZRT_OK;
}

zrt_status zrt_event_query(zrt_event handle, int32_t *done) {
    event *self;
    stream *on;
    zrt_status status = find_recorded(handle, &self, &on);
    if (status) return status;
    if (!done) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the event's state");
    *done = !on || is_done(on->base.context, on->index, self->value);
    return ZRT_OK;
}

zrt_status zrt_event_wait(zrt_event handle, uint64_t timeout_ns) {
    event *self;
    stream *on;
    zrt_status status = find_recorded(handle, &self, &on);
    if (status || !on) return status;
    status = wait_for_value(on, self->value, timeout_ns);
    return status ? status : result_of(on, self->value);
}

// Graphs --------------------------------------------------------------------------------------------------

static void free_variant(variant *self) {
    for (uint32_t i = 0; i < self->port_count; i++) {
        if (self->ports[i].buffer) self->ports[i].buffer->bound--;
        free(self->ports[i].name);
    }
    free(self->ports);
    if (self->program.kind == ZRT_PROGRAM_DWORDS) free((void *)self->program.dwords);
    if (self->program.release) self->program.release(self->program.owner);
    free(self);
}

static void destroy_graph(object *base) {
    graph *self = (graph *)base;
    bool closing = self->base.context->closing;
    for (uint32_t i = 0; i < self->count; i++) {
        variant *entry = self->variants[i];
        if (closing)  // buffers of the context may be gone already
            for (uint32_t j = 0; j < entry->port_count; j++) entry->ports[j].buffer = 0;
        free_variant(entry);
    }
    free(self->variants);
    free(self->name);
}

static bool is_variant_busy(context *owner, const variant *self) {
    for (uint32_t i = 0; i < STREAMS; i++)
        if (self->last[i] && !is_done(owner, i, self->last[i])) return true;
    return false;
}

zrt_status zrt_graph_create(zrt_context context_handle, const char *name, uint32_t max_variants, zrt_graph *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the graph's handle");
    zrt_status status = zrt_check_name(name, "the graph's name");
    if (status) return status;
    if (!max_variants || max_variants > MOST_VARIANTS)
        return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: max_variants must be 1 to %d, not %u", name, MOST_VARIANTS, max_variants);
    graph *self = zrt_new(owner, GRAPH, sizeof *self, destroy_graph);
    if (!self) return ZRT_ERR_MEMORY;
    self->name = strdup(name);
    self->variants = calloc(max_variants, sizeof *self->variants);
    self->most = max_variants;
    if (!self->name || !self->variants) {
        zrt_drop(&self->base);
        return no_memory();
    }
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_graph_destroy(zrt_graph handle) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    for (uint32_t i = 0; i < self->count; i++)
        if (is_variant_busy(self->base.context, self->variants[i]))
            return zrt_fail(ZRT_ERR_IN_FLIGHT, "graph %s: a replay of key %#llx has not finished", self->name, (unsigned long long)self->variants[i]->key);
    zrt_drop(&self->base);
    return ZRT_OK;
}

static int64_t index_of(const graph *self, uint64_t key) {
    for (uint32_t i = 0; i < self->count; i++)
        if (self->variants[i]->key == key) return i;
    return -1;
}

static variant *find_variant(graph *self, uint64_t key) {
    if (self->latest < self->count && self->variants[self->latest]->key == key) return self->variants[self->latest];
    int64_t index = index_of(self, key);
    if (index >= 0) {
        self->latest = (uint32_t)index;
        return self->variants[index];
    }
    char keys[160] = "none";
    for (uint32_t i = 0, at = 0; i < self->count && at + 24 < sizeof keys; i++)
        at += (uint32_t)snprintf(keys + at, sizeof keys - at, i ? ", %#llx" : "%#llx", (unsigned long long)self->variants[i]->key);
    zrt_fail(ZRT_ERR_NO_VARIANT, "graph %s has no program for key %#llx; it has %s", self->name, (unsigned long long)key, keys);
    return 0;
}

static void take_out(graph *self, uint32_t index) {
    variant *entry = self->variants[index];
    self->variants[index] = self->variants[--self->count];
    self->latest = 0;
    free_variant(entry);
}

static zrt_status check_program(const graph *self, const zrt_program *program) {
    if (program->size_bytes != sizeof *program)
        return zrt_fail(ZRT_ERR_VERSION, "zrt_program has %u bytes, expected %zu", program->size_bytes, sizeof *program);
    if (program->kind == ZRT_PROGRAM_TASKS) {
        if (!program->tasks) return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: a program of tasks needs a task list", self->name);
        if (!self->base.context->library)
            return zrt_fail(ZRT_ERR_UNSUPPORTED, "graph %s: the context was created without a kernel library", self->name);
        return ZRT_OK;
    }
    if (program->kind != ZRT_PROGRAM_DWORDS) return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: %u is not a kind of program", self->name, program->kind);
    stream *ring = zrt_find(program->ring, STREAM);
    if (!ring) return ZRT_ERR_HANDLE;
    if (!ring->is_ring || ring->base.context != self->base.context)
        return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: stream %s is not a ring of this context", self->name, ring->name);
    if (!program->dwords || !program->dword_count || program->fence_at + 2ull > program->dword_count ||
        program->fence_end > program->dword_count || program->dword_count >= ring->ring.ring_dw)
        return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: a program of %u dwords needs its fence value inside it (at %u, end %u) and room in a ring of %u",
                        self->name, program->dword_count, program->fence_at, program->fence_end, ring->ring.ring_dw);
    return ZRT_OK;
}

zrt_status zrt_graph_adopt(zrt_graph handle, uint64_t key, const zrt_program *program) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    if (!program) return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: the program is a null pointer", self->name);
    zrt_status status = check_program(self, program);
    if (status) return status;
    if (index_of(self, key) >= 0) return zrt_fail(ZRT_ERR_EXISTS, "graph %s already has a program for key %#llx", self->name, (unsigned long long)key);
    int64_t oldest = -1;
    if (self->count == self->most) {
        for (uint32_t i = 0; i < self->count; i++)
            if (!is_variant_busy(self->base.context, self->variants[i]) &&
                (oldest < 0 || self->variants[i]->used < self->variants[oldest]->used))
                oldest = i;
        if (oldest < 0) return zrt_fail(ZRT_ERR_IN_FLIGHT, "graph %s: all %u programs are in flight; wait for a replay", self->name, self->most);
    }
    variant *entry = calloc(1, sizeof *entry);
    uint32_t *dwords = program->kind == ZRT_PROGRAM_DWORDS ? malloc(4ull * program->dword_count) : 0;
    if (!entry || (program->kind == ZRT_PROGRAM_DWORDS && !dwords)) {
        free(entry);
        free(dwords);
        return no_memory();
    }
    entry->key = key;
    entry->program = *program;
    entry->used = ++self->clock;
    if (dwords) entry->program.dwords = memcpy(dwords, program->dwords, 4ull * program->dword_count);
    if (oldest >= 0) take_out(self, (uint32_t)oldest);
    self->variants[self->count++] = entry;
    return ZRT_OK;
}

zrt_status zrt_graph_remove(zrt_graph handle, uint64_t key) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    variant *entry = find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    if (is_variant_busy(self->base.context, entry))
        return zrt_fail(ZRT_ERR_IN_FLIGHT, "graph %s: the last replay of key %#llx has not finished", self->name, (unsigned long long)key);
    take_out(self, self->latest);
    return ZRT_OK;
}

zrt_status zrt_graph_find(zrt_graph handle, uint64_t key) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    return find_variant(self, key) ? ZRT_OK : ZRT_ERR_NO_VARIANT;
}

static int compare_use(const void *left, const void *right) {
    const variant *const *a = left, *const *b = right;
    return ((*a)->used > (*b)->used) - ((*a)->used < (*b)->used);
}

zrt_status zrt_graph_keys(zrt_graph handle, uint64_t *keys, uint32_t capacity, uint32_t *count) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    if (!count || (!keys && capacity)) return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: no place for the keys or their count", self->name);
    qsort(self->variants, self->count, sizeof *self->variants, compare_use);
    self->latest = 0;
    *count = self->count;
    for (uint32_t i = 0; i < self->count && i < capacity; i++) keys[i] = self->variants[i]->key;
    return ZRT_OK;
}

static port *find_port(const variant *self, const char *name) {
    for (uint32_t i = 0; i < self->port_count; i++)
        if (!strcmp(self->ports[i].name, name)) return &self->ports[i];
    return 0;
}

zrt_status zrt_graph_bind(zrt_graph handle, uint64_t key, const char *name, zrt_buffer buffer_handle, uint64_t offset_bytes,
                          uint64_t size_bytes) {
    graph *self = zrt_find(handle, GRAPH);
    buffer *bound = self ? zrt_find(buffer_handle, BUFFER) : 0;
    if (!bound) return ZRT_ERR_HANDLE;
    zrt_status status = zrt_check_name(name, "the port's name");
    if (status) return status;
    if (bound->base.context != self->base.context) return zrt_fail(ZRT_ERR_HANDLE, "graph %s: buffer %s belongs to another context", self->name, bound->name);
    if ((status = check_range(bound, offset_bytes, size_bytes, false))) return status;
    variant *entry = find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    port *place = find_port(entry, name);
    if (!place) {
        port *ports = realloc(entry->ports, (entry->port_count + 1) * sizeof *ports);
        if (!ports) return no_memory();
        entry->ports = ports;
        place = &ports[entry->port_count];
        *place = (port){.name = strdup(name)};
        if (!place->name) return no_memory();
        entry->port_count++;
    } else {
        place->buffer->bound--;
    }
    bound->bound++;
    place->buffer = bound;
    place->offset_bytes = offset_bytes;
    place->size_bytes = size_bytes;
    return ZRT_OK;
}

zrt_status zrt_graph_port(zrt_graph handle, uint64_t key, const char *name, zrt_port *result) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    if (!result) return zrt_fail(ZRT_ERR_ARGUMENT, "graph %s: no place for the port", self->name);
    zrt_status status = zrt_check_name(name, "the port's name");
    if (status) return status;
    variant *entry = find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    const port *place = find_port(entry, name);
    if (!place) return zrt_fail(ZRT_ERR_NOT_FOUND, "graph %s, key %#llx: no port %s", self->name, (unsigned long long)key, name);
    *result = (zrt_port){place->buffer->base.handle, place->offset_bytes, place->size_bytes};
    return ZRT_OK;
}

static zrt_status check_replay(graph *self, uint64_t key, const stream *on, variant **entry) {
    if (self->base.context != on->base.context) return zrt_fail(ZRT_ERR_HANDLE, "graph %s: stream %s belongs to another context", self->name, on->name);
    if (!(*entry = find_variant(self, key))) return ZRT_ERR_NO_VARIANT;
    bool is_dwords = (*entry)->program.kind == ZRT_PROGRAM_DWORDS;
    if (is_dwords != on->is_ring || (is_dwords && (*entry)->program.ring != on->base.handle))
        return zrt_fail(ZRT_ERR_UNSUPPORTED, "graph %s: the program of key %#llx cannot run on stream %s", self->name, (unsigned long long)key, on->name);
    return ZRT_OK;
}

static zrt_status replay(graph *self, variant *entry, stream *on) {
    zrt_status status = on->is_ring ? submit_dwords(on, &entry->program) : submit_job(on, (job){.graph = self, .variant = entry});
    if (status) return status;
    entry->used = ++self->clock;
    entry->last[on->index] = on->base.context->times[on->index].submitted;
    for (uint32_t i = 0; i < entry->port_count; i++) use_buffer(entry->ports[i].buffer, on);
    return ZRT_OK;
}

zrt_status zrt_graph_replay(zrt_graph handle, uint64_t key, zrt_stream stream_handle) {
    graph *self = zrt_find(handle, GRAPH);
    stream *on = self ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    variant *entry;
    zrt_status status = check_replay(self, key, on, &entry);
    return status ? status : replay(self, entry, on);
}

// Plans ---------------------------------------------------------------------------------------------------

static void destroy_plan(object *base) {
    plan *self = (plan *)base;
    for (uint32_t i = 0; i < self->count; i++) free(self->steps[i].earlier);
    free(self->steps);
    free(self->order);
    free(self->values);
    free(self->streams);
}

zrt_status zrt_plan_create(zrt_context context_handle, zrt_plan *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the plan's handle");
    plan *self = zrt_new(owner, PLAN, sizeof *self, destroy_plan);
    if (!self) return ZRT_ERR_MEMORY;
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_plan_destroy(zrt_plan handle) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_drop(&self->base);
    return ZRT_OK;
}

zrt_status zrt_plan_add(zrt_plan handle, zrt_graph graph_handle, uint64_t key, zrt_stream stream_handle, uint32_t *number) {
    plan *self = zrt_find(handle, PLAN);
    graph *of = self ? zrt_find(graph_handle, GRAPH) : 0;
    stream *on = of ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (!number) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the number of the step");
    if (self->count == MOST_STEPS) return zrt_fail(ZRT_ERR_MEMORY, "a plan has at most %d steps", MOST_STEPS);
    if (of->base.context != self->base.context || on->base.context != self->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "plan: graph %s or stream %s belongs to another context", of->name, on->name);
    step *steps = realloc(self->steps, (self->count + 1) * sizeof *steps);
    if (!steps) return no_memory();
    self->steps = steps;
    steps[self->count] = (step){.graph = graph_handle, .key = key, .stream = stream_handle};
    *number = self->count++;
    free(self->order);
    self->order = 0;
    return ZRT_OK;
}

// Whether `start` depends on `goal`, directly or not; a step does on itself.
static zrt_status reaches(const plan *self, uint32_t start, uint32_t goal, bool *answer) {
    uint8_t *seen = calloc(self->count, 1);
    uint32_t *todo = malloc(self->count * sizeof *todo), count = 0;
    if (!seen || !todo) {
        free(seen);
        free(todo);
        return no_memory();
    }
    *answer = false;
    seen[start] = 1;
    todo[count++] = start;
    while (count && !*answer) {
        uint32_t at = todo[--count];
        *answer = at == goal;
        for (uint32_t i = 0; i < self->steps[at].earlier_count; i++) {
            uint32_t next = self->steps[at].earlier[i];
            if (!seen[next]) seen[next] = 1, todo[count++] = next;
        }
    }
    free(seen);
    free(todo);
    return ZRT_OK;
}

zrt_status zrt_plan_after(zrt_plan handle, uint32_t number, uint32_t earlier) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (number >= self->count || earlier >= self->count)
        return zrt_fail(ZRT_ERR_RANGE, "no step %u in a plan of %u", number >= self->count ? number : earlier, self->count);
    step *step = &self->steps[number];
    for (uint32_t i = 0; i < step->earlier_count; i++)
        if (step->earlier[i] == earlier) return zrt_fail(ZRT_ERR_EXISTS, "step %u runs after step %u already", number, earlier);
    bool cycle = false;
    zrt_status status = reaches(self, earlier, number, &cycle);
    if (status) return status;
    if (cycle) return zrt_fail(ZRT_ERR_STATE, "step %u after step %u creates a cycle", number, earlier);
    uint32_t *list = realloc(step->earlier, (step->earlier_count + 1) * sizeof *list);
    if (!list) return no_memory();
    step->earlier = list;
    list[step->earlier_count++] = earlier;
    free(self->order);
    self->order = 0;
    return ZRT_OK;
}

// Dependencies first, then the order in which steps were added.
static zrt_status sort_steps(plan *self) {
    uint32_t *order = malloc(self->count * sizeof *order), count = 0;
    uint64_t *values = realloc(self->values, self->count * sizeof *values);
    if (values) self->values = values;
    zrt_stream *streams = realloc(self->streams, self->count * sizeof *streams);
    if (streams) self->streams = streams;
    uint8_t *placed = calloc(self->count, 1);
    if (!order || !values || !streams || !placed) {
        free(order);
        free(placed);
        return no_memory();
    }
    while (count < self->count)
        for (uint32_t i = 0; i < self->count; i++) {
            bool ready = !placed[i];
            for (uint32_t j = 0; ready && j < self->steps[i].earlier_count; j++) ready = placed[self->steps[i].earlier[j]];
            if (!ready) continue;
            placed[i] = 1;
            order[count++] = i;
            break;
        }
    free(placed);
    self->order = order;
    return ZRT_OK;
}

zrt_status zrt_plan_execute(zrt_plan handle) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (!self->count) return zrt_fail(ZRT_ERR_STATE, "the plan has no steps; add one first");
    zrt_status status = self->order ? ZRT_OK : sort_steps(self);
    for (uint32_t i = 0; i < self->count && !status; i++) {
        graph *of = zrt_find(self->steps[i].graph, GRAPH);
        stream *on = of ? zrt_find(self->steps[i].stream, STREAM) : 0;
        variant *entry;
        status = on ? check_replay(of, self->steps[i].key, on, &entry) : ZRT_ERR_HANDLE;
    }
    if (status) return status;
    self->executed = false;
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t number = self->order[i];
        const step *step = &self->steps[number];
        graph *of = zrt_find(step->graph, GRAPH);
        stream *on = zrt_find(step->stream, STREAM);
        for (uint32_t j = 0; j < step->earlier_count; j++) {
            stream *other = zrt_find(self->streams[step->earlier[j]], STREAM);
            add_wait(on, other->index, self->values[step->earlier[j]]);
        }
        if ((status = replay(of, find_variant(of, step->key), on))) return status;
        self->values[number] = on->base.context->times[on->index].submitted;
        self->streams[number] = step->stream;
    }
    self->executed = true;
    return ZRT_OK;
}

zrt_status zrt_plan_wait(zrt_plan handle, uint64_t timeout_ns) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (!self->executed) return zrt_fail(ZRT_ERR_STATE, "the plan was not executed");
    uint64_t deadline = deadline_after(timeout_ns);
    zrt_status result = ZRT_OK;
    for (uint32_t i = 0; i < self->count; i++) {
        stream *on = zrt_find(self->streams[i], STREAM);
        if (!on) continue;  // destroyed, so it has finished
        uint64_t now = now_ns();
        zrt_status status = wait_for_value(on, self->values[i], now < deadline ? deadline - now : 0);
        if (status) return status;
        if (!result) result = result_of(on, self->values[i]);
    }
    return result;
}
