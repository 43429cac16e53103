// Errors, handles, objects of a context, memory and time.
#define _GNU_SOURCE
#include "objects.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAPPED_BYTES (1u << 20)  // from here on, memory is pages that are zero until they are touched

static _Thread_local char last_error[512];

static const char *const STATUS_TEXTS[] = {
    "ZRT_OK", "ZRT_ERR_HANDLE", "ZRT_ERR_ARGUMENT", "ZRT_ERR_RANGE", "ZRT_ERR_NO_VARIANT", "ZRT_ERR_NOT_FOUND",
    "ZRT_ERR_EXISTS", "ZRT_ERR_IN_FLIGHT", "ZRT_ERR_IN_USE", "ZRT_ERR_TIMEOUT", "ZRT_ERR_MEMORY", "ZRT_ERR_FILE",
    "ZRT_ERR_FORMAT", "ZRT_ERR_VERSION", "ZRT_ERR_REFUSED", "ZRT_ERR_UNSUPPORTED", "ZRT_ERR_STATE", "ZRT_ERR_LOST",
};

zrt_status zrt_fail(zrt_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(last_error, sizeof last_error, format, values);
    va_end(values);
    return status;
}

zrt_status zrt_no_memory(void) { return zrt_fail(ZRT_ERR_MEMORY, "out of memory"); }

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

// Handles: kind << 56 | generation << 32 | slot + 1. A slot knows the one handle that is valid for it, so any other
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

void *zrt_new(context *owner, kind kind, size_t size, void (*destroy)(object *)) {
    object *self = calloc(1, size);
    if (!self || !(self->handle = take_handle(self, kind))) {
        free(self);
        zrt_no_memory();
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

uint64_t zrt_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t zrt_deadline_after(uint64_t timeout_ns) {
    uint64_t now = zrt_now_ns(), most = INT64_MAX;
    return timeout_ns < most - now ? now + timeout_ns : most;
}

bool zrt_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline) {
    struct timespec at = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
    return pthread_cond_timedwait(condition, lock, &at) != ETIMEDOUT;
}

bool zrt_init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return false;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int problem = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return !problem;
}
