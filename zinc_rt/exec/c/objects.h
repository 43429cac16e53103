// The objects behind the handles of exec.h, and what the library's files share.
#pragma once
#pragma GCC visibility push(default)
#include "exec.h"
#pragma GCC visibility pop
#include <pthread.h>
#include <stdbool.h>
#include "task.h"

#define STREAMS 16  // of a context at a time
#define NAME_BYTES 256
#define KEPT_FAILURES 32       // of a stream, the latest

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

// objects.c
zrt_status zrt_fail(zrt_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
zrt_status zrt_no_memory(void);
zrt_status zrt_check_name(const char *name, const char *what);
void *zrt_find(uint64_t handle, kind kind);  // the object of a handle; null after zrt_fail
// A zeroed object of `size` bytes in the context; null after zrt_fail.
void *zrt_new(context *context, kind kind, size_t size, void (*destroy)(object *self));
void zrt_drop(object *self);                 // destroy one object
uint8_t *zrt_allocate(uint64_t size_bytes);  // zeroed, aligned to a cache line; null if there is no memory
void zrt_release(uint8_t *memory, uint64_t size_bytes);
uint64_t zrt_now_ns(void);
uint64_t zrt_deadline_after(uint64_t timeout_ns);
bool zrt_init_condition(pthread_cond_t *condition);
bool zrt_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline);  // false after the deadline

// context.c
void *zrt_find_kernel(context *context, const char *name);  // null if the context has none of this name
const char *zrt_kernels_id(context *context);               // null without a kernel library

// streams.c
bool zrt_is_done(context *owner, uint32_t index, uint64_t value);
zrt_status zrt_wait_for_value(stream *self, uint64_t value, uint64_t timeout_ns);
zrt_status zrt_result_of(stream *self, uint64_t value);  // of work that is done
void zrt_add_wait(stream *self, uint32_t index, uint64_t value);
zrt_status zrt_submit_job(stream *self, job content);
zrt_status zrt_submit_dwords(stream *self, const zrt_program *program);
// With the context's lock held.
void zrt_note_failure(stream *self, uint64_t first, uint64_t last, zrt_status status, const char *message);
const failure *zrt_failure_of(const stream *self, uint64_t value);
uint64_t zrt_read_fence(stream *self, bool locked);

// buffers.c
buffer *zrt_new_buffer(context *context, const char *name, uint8_t *memory, uint64_t size_bytes,
                       void (*release)(uint8_t *memory, uint64_t size_bytes));
bool zrt_is_busy(buffer *buffer);
zrt_status zrt_check_range(const buffer *self, uint64_t offset_bytes, uint64_t size_bytes, bool writes);
void zrt_use_buffer(buffer *self, const stream *stream);  // by the stream's last submission

// graphs.c
variant *zrt_find_variant(graph *self, uint64_t key);  // null after zrt_fail
zrt_status zrt_check_replay(graph *self, uint64_t key, const stream *on, variant **entry);
zrt_status zrt_replay(graph *self, variant *entry, stream *on);
