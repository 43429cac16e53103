// What exec.c and image.c share: the objects behind the handles of exec.h.
#pragma once
#pragma GCC visibility push(default)
#include "exec.h"
#pragma GCC visibility pop
#include <pthread.h>
#include <stdbool.h>
#include "task.h"

#define STREAMS 16  // of a context at a time
#define NAME_BYTES 256

typedef enum { CONTEXT = 1, BUFFER, STREAM, EVENT, GRAPH, PLAN, IMAGE, CAPSULE } kind;

typedef struct context context;
typedef struct object object;
struct object {
    uint64_t handle;
    context *context;
    object *previous, *next;  // of the context
    void (*destroy)(object *self);
};

typedef struct {
    object base;
    char *name;
    uint8_t *memory;
    uint64_t size_bytes;
    void (*release)(uint8_t *memory, uint64_t size_bytes);  // null: wrapped memory
    uint64_t uses[STREAMS];  // by stream, the value of the last submission that uses it
    uint32_t bound;          // ports that name it
    bool constant;           // mapped read-only
} buffer;

typedef struct {
    char *name;
    buffer *buffer;
    uint64_t offset_bytes, size_bytes;
} port;

typedef struct {
    uint64_t key;
    zrt_program program;
    uint64_t last[STREAMS];  // by stream, the value of its last replay
    uint64_t used;           // the graph's clock at its last replay
    port *ports;
    uint32_t port_count;
} variant;

typedef struct {
    object base;
    char *name;
    variant **variants;
    uint32_t count, most;
    uint32_t latest;  // index of the variant found last
    uint64_t clock;
} graph;

extern const char *const zrt_refusals[];  // by the numbers of task.h; null at the end

zrt_status zrt_fail(zrt_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
// The object of a handle, or null after zrt_fail.
void *zrt_find(uint64_t handle, kind kind);
// A zeroed object of `size` bytes in the context; null after zrt_fail.
void *zrt_new(context *context, kind kind, size_t size, void (*destroy)(object *self));
void zrt_drop(object *self);  // destroy one object of a context
zrt_status zrt_check_name(const char *name, const char *what);
bool zrt_is_busy(buffer *buffer);
buffer *zrt_new_buffer(context *context, const char *name, uint8_t *memory, uint64_t size_bytes,
                       void (*release)(uint8_t *memory, uint64_t size_bytes));
uint8_t *zrt_allocate(uint64_t size_bytes);  // zeroed, aligned to a cache line; null if there is no memory
void zrt_release(uint8_t *memory, uint64_t size_bytes);
void *zrt_find_kernel(context *context, const char *name);  // null if the context has none of this name
const char *zrt_kernels_id(context *context);               // null without a kernel library
