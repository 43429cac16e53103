// Contexts: the worker, which runs the submissions of all streams that are no rings, and the threads that compute.
#define _GNU_SOURCE
#include "objects.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 1024
#define RING_POLL_NS 1000000   // a ring's fence cannot wake the worker

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

// Why a kernel refused, by the numbers of task.h.
static const char *const REFUSALS[] = {
    "", "a token is outside the vocabulary", "a position is outside the context", "a slot is outside its table",
    "the page table names a page outside the cache", "a row is outside its tensor", "an expert is outside its tensor",
    "an entry is outside its table, or named twice in one step",
};

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
    uint64_t why = (uint64_t)result >> 32, known = sizeof REFUSALS / sizeof *REFUSALS;
    snprintf(message, size, "graph %s, task %u: %s", job->graph->name, (uint32_t)result,
             why < known ? REFUSALS[why] : "refused");
    return ZRT_ERR_REFUSED;
}

static zrt_status run_job(context *owner, job *job, char *message, size_t size) {
    zrt_status status = ZRT_OK;
    pthread_mutex_lock(&owner->lock);
    for (uint32_t i = 0; i < STREAMS && !status; i++) {
        const failure *found = job->waits[i] && owner->streams[i] ? zrt_failure_of(owner->streams[i], job->waits[i]) : 0;
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
    if (status) zrt_note_failure(self, first, last, status, message);
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
                zrt_wait_until(&owner->work, &owner->lock, zrt_deadline_after(RING_POLL_NS));
                for (uint32_t i = 0; i < STREAMS; i++)
                    if (owner->streams[i] && owner->streams[i]->is_ring) zrt_read_fence(owner->streams[i], true);
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
    if (!self->pool || !self->helpers) return zrt_no_memory();
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
    if (!zrt_init_condition(&self->work) || !zrt_init_condition(&self->finished) || !zrt_init_condition(&self->help_wanted)) status = zrt_no_memory();
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
