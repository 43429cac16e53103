// Streams and events: submission, to the worker or into a ring, and waiting. The rules are those of exec/stream.py.
#define _GNU_SOURCE
#include "objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS 200              // looks at a fence before the thread sleeps
#define LONGEST_PAUSE_NS 1000000

// Called with the context's lock held.
void zrt_note_failure(stream *self, uint64_t first, uint64_t last, zrt_status status, const char *message) {
    if (self->failure_count == KEPT_FAILURES)
        memmove(self->failures, self->failures + 1, --self->failure_count * sizeof *self->failures);
    failure *entry = &self->failures[self->failure_count++];
    *entry = (failure){.first = first, .last = last, .status = status};
    snprintf(entry->message, sizeof entry->message, "%s", message);
}

const failure *zrt_failure_of(const stream *self, uint64_t value) {
    for (uint32_t i = self->failure_count; i--;)
        if (self->failures[i].first <= value && value <= self->failures[i].last) return &self->failures[i];
    return 0;
}

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
uint64_t zrt_read_fence(stream *self, bool locked) {
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
    zrt_note_failure(self, done + 1, UINT64_MAX, ZRT_ERR_LOST, message);
    atomic_store_explicit(&time->done, time->submitted, memory_order_release);
    if (!locked) pthread_mutex_unlock(&self->base.context->lock);
    return time->submitted;
}

static uint64_t poll_ring(stream *self) { return zrt_read_fence(self, false); }

// Call `look` until it returns true, or false after the deadline.
static bool poll_until(stream *self, uint64_t argument, bool (*look)(stream *, uint64_t), uint64_t timeout_ns) {
    for (uint32_t i = 0; i < SPINS; i++)
        if (look(self, argument)) return true;
    uint64_t deadline = zrt_deadline_after(timeout_ns);
    for (long pause = 1000; !look(self, argument);) {
        if (zrt_now_ns() >= deadline) return look(self, argument);
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

bool zrt_is_done(context *owner, uint32_t index, uint64_t value) {
    if (atomic_load_explicit(&owner->times[index].done, memory_order_acquire) >= value) return true;
    stream *self = owner->streams[index];
    return self && self->is_ring && poll_ring(self) >= value;
}

zrt_status zrt_wait_for_value(stream *self, uint64_t value, uint64_t timeout_ns) {
    context *owner = self->base.context;
    bool done = zrt_is_done(owner, self->index, value);
    if (!done && self->is_ring) {
        done = poll_until(self, value, is_reached, timeout_ns);
    } else if (!done) {
        uint64_t deadline = zrt_deadline_after(timeout_ns);
        pthread_mutex_lock(&owner->lock);
        while (!(done = atomic_load(&owner->times[self->index].done) >= value))
            if (!zrt_wait_until(&owner->finished, &owner->lock, deadline)) {
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

zrt_status zrt_result_of(stream *self, uint64_t value) {
    pthread_mutex_lock(&self->base.context->lock);
    const failure *found = zrt_failure_of(self, value);
    zrt_status status = found ? zrt_fail(found->status, "%s", found->message) : ZRT_OK;
    pthread_mutex_unlock(&self->base.context->lock);
    return status;
}

zrt_status zrt_submit_job(stream *self, job content) {
    context *owner = self->base.context;
    job *job = malloc(sizeof *job);
    if (!job) return zrt_no_memory();
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
zrt_status zrt_submit_dwords(stream *self, const zrt_program *program) {
    context *owner = self->base.context;
    zrt_ring *ring = &self->ring;
    uint32_t waits = 0;
    for (uint32_t i = 0; i < STREAMS; i++) {
        stream *other = owner->streams[i];
        if (!self->waits[i] || !other || (zrt_is_done(owner, i, self->waits[i]) && !zrt_failure_of(other, self->waits[i]))) continue;
        if (other->is_ring && ring->wait_dwords && !zrt_failure_of(other, self->waits[i])) {
            waits++;
            continue;
        }
        zrt_status status = zrt_wait_for_value(other, self->waits[i], ring->full_timeout_ns);
        if (!status) status = zrt_result_of(other, self->waits[i]);
        if (status) return status;
    }
    uint32_t count = waits * ring->wait_dw + program->dword_count;
    uint64_t end_dw = ring->wptr_dw + count;
    if (count >= ring->ring_dw)
        return zrt_fail(ZRT_ERR_RANGE, "stream %s: %u dwords do not fit in a ring of %u", self->name, count, ring->ring_dw);
    if (!has_room(self, end_dw) && !poll_until(self, end_dw, has_room, ring->full_timeout_ns))
        return zrt_fail(ZRT_ERR_TIMEOUT, "stream %s: no room for %u dwords within %.3f s", self->name, count, (double)ring->full_timeout_ns / 1e9);
    timeline *time = &owner->times[self->index];
    const failure *lost = zrt_failure_of(self, time->submitted + 1);
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
        zrt_no_memory();
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
        if (!(packet = malloc(4 * ring->wait_dw))) return zrt_no_memory();
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
    if (!zrt_is_done(owner, self->index, owner->times[self->index].submitted))
        return zrt_fail(ZRT_ERR_IN_FLIGHT, "stream %s has work that has not finished; synchronise it first", self->name);
    pthread_mutex_lock(&owner->lock);
    owner->streams[self->index] = 0;
    pthread_mutex_unlock(&owner->lock);
    zrt_drop(&self->base);
    return ZRT_OK;
}

void zrt_add_wait(stream *self, uint32_t index, uint64_t value) {
    if (index != self->index && value > self->waits[index]) self->waits[index] = value;
}

zrt_status zrt_stream_wait(zrt_stream handle, zrt_event event_handle) {
    stream *self = zrt_find(handle, STREAM);
    event *point = self ? zrt_find(event_handle, EVENT) : 0;
    if (!point) return ZRT_ERR_HANDLE;
    if (point->base.context != self->base.context) return zrt_fail(ZRT_ERR_HANDLE, "stream %s: the event belongs to another context", self->name);
    if (!point->recorded) return zrt_fail(ZRT_ERR_STATE, "stream %s waits on an event that no stream recorded; record it first", self->name);
    stream *other = zrt_find(point->stream, STREAM);  // where it was destroyed, its work has finished
    if (other) zrt_add_wait(self, other->index, point->value);
    return ZRT_OK;
}

zrt_status zrt_stream_synchronize(zrt_stream handle, uint64_t timeout_ns) {
    stream *self = zrt_find(handle, STREAM);
    if (!self) return ZRT_ERR_HANDLE;
    context *owner = self->base.context;
    zrt_status status = zrt_wait_for_value(self, owner->times[self->index].submitted, timeout_ns);
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
    *done = !on || zrt_is_done(on->base.context, on->index, self->value);
    return ZRT_OK;
}

zrt_status zrt_event_wait(zrt_event handle, uint64_t timeout_ns) {
    event *self;
    stream *on;
    zrt_status status = find_recorded(handle, &self, &on);
    if (status || !on) return status;
    status = zrt_wait_for_value(on, self->value, timeout_ns);
    return status ? status : zrt_result_of(on, self->value);
}
