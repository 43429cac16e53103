// The execution contract of ZINC_RT for hosts in C, and in any language that calls C.
//
// A host opens a context, takes buffers and graphs from an image (a file that `zinc-rt image` writes) or adopts
// programs that something else in the process built, and replays them. Nothing here runs Python. docs/exec-c.md
// describes the objects, docs/exec.md the rules that they share with the Python objects of zinc_rt.exec.
//
// Every function but the first three returns a status. An error leaves everything as it was, and
// zrt_last_error() has a sentence about it. Handles are numbers: 0, a handle that was destroyed and a handle of
// another kind are errors, never undefined behaviour. Pointers must be valid for the size that is passed with
// them. One thread at a time may use a context and its objects; contexts are independent of each other.
#ifndef ZRT_EXEC_H
#define ZRT_EXEC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZRT_ABI 1  // raised when a function, a struct or a status changes its meaning; additions leave it

typedef uint64_t zrt_context;
typedef uint64_t zrt_buffer;   // a region of memory, the only state
typedef uint64_t zrt_stream;   // submissions in order
typedef uint64_t zrt_event;    // a point in a stream that other streams and the host can wait for
typedef uint64_t zrt_graph;    // programs by exact shape key
typedef uint64_t zrt_plan;     // replays on several streams, ordered by data dependencies
typedef uint64_t zrt_image;    // the buffers and graphs of a file
typedef uint64_t zrt_capsule;  // a copy of a part of an image's state

typedef enum {
    ZRT_OK = 0,
    ZRT_ERR_HANDLE = 1,       // no such object: destroyed, of another kind, or of another context
    ZRT_ERR_ARGUMENT = 2,     // a null pointer, a malformed name, a number that has no meaning
    ZRT_ERR_RANGE = 3,        // bytes outside a buffer, or a copy onto itself
    ZRT_ERR_NO_VARIANT = 4,   // the graph has no program for exactly this key
    ZRT_ERR_NOT_FOUND = 5,    // no port, graph, buffer, property or group of this name; no such file
    ZRT_ERR_EXISTS = 6,       // the key or the dependency is there already
    ZRT_ERR_IN_FLIGHT = 7,    // work that uses it has not finished
    ZRT_ERR_IN_USE = 8,       // something is still bound to it
    ZRT_ERR_TIMEOUT = 9,      // not finished in time; it may still finish
    ZRT_ERR_MEMORY = 10,      // out of memory, or of handles
    ZRT_ERR_FILE = 11,        // the file cannot be read, written or loaded
    ZRT_ERR_FORMAT = 12,      // the file is damaged, or not what its name says
    ZRT_ERR_VERSION = 13,     // the file belongs to another version, model, kernel library or image
    ZRT_ERR_REFUSED = 14,     // a kernel refused the data, such as a token outside the vocabulary
    ZRT_ERR_UNSUPPORTED = 15, // this stream, context or host cannot do it
    ZRT_ERR_STATE = 16,       // an event that was never recorded, an empty plan, a cycle
    ZRT_ERR_LOST = 17,        // the ring's memory holds what no submission wrote
} zrt_status;

uint32_t zrt_abi_version(void);               // ZRT_ABI of the library; compare it with the header's
const char *zrt_status_text(zrt_status status);  // "ZRT_ERR_RANGE"; never null
const char *zrt_last_error(void);             // of this thread's last failed call: what, where, what next

// Contexts ------------------------------------------------------------------------------------------------

typedef struct {
    uint32_t size_bytes;  // of this struct
    uint32_t threads;     // that compute, 0: one for each CPU that the process may use
    const char *kernels;  // path of the kernel library of t_cpu_native; null: no programs of tasks
} zrt_context_options;

zrt_status zrt_context_create(const zrt_context_options *options, zrt_context *context);
// Wait for what runs, fail what is queued, destroy every object of the context.
zrt_status zrt_context_destroy(zrt_context context);

// Buffers -------------------------------------------------------------------------------------------------

zrt_status zrt_buffer_create(zrt_context context, const char *name, uint64_t size_bytes, zrt_buffer *buffer);  // zeros
zrt_status zrt_buffer_wrap(zrt_context context, const char *name, void *memory, uint64_t size_bytes, zrt_buffer *buffer);
zrt_status zrt_buffer_destroy(zrt_buffer buffer);
zrt_status zrt_buffer_size(zrt_buffer buffer, uint64_t *size_bytes);
// The host's access. ZRT_ERR_IN_FLIGHT while a replay or copy on any stream uses the buffer.
zrt_status zrt_buffer_write(zrt_buffer buffer, uint64_t offset_bytes, const void *data, uint64_t size_bytes);
zrt_status zrt_buffer_read(zrt_buffer buffer, uint64_t offset_bytes, void *data, uint64_t size_bytes);
zrt_status zrt_buffer_map(zrt_buffer buffer, uint64_t offset_bytes, uint64_t size_bytes, void **memory);  // until the next replay
// Submissions in a stream's order. Rings do not support them: adopt a program that copies.
zrt_status zrt_buffer_copy(zrt_buffer target, uint64_t target_offset_bytes, zrt_buffer source, uint64_t source_offset_bytes,
                           uint64_t size_bytes, zrt_stream stream);
zrt_status zrt_buffer_fill(zrt_buffer buffer, uint64_t offset_bytes, uint64_t size_bytes, zrt_stream stream);  // zeros

// Streams and events --------------------------------------------------------------------------------------

// A queue of a GPU that its owner (the process's KFD or user-queue code) mapped, and that is idle. The library
// publishes into it until the stream is destroyed; zrt_ring_position then tells the owner where to continue.
typedef struct {
    uint32_t size_bytes;       // of this struct
    uint32_t ring_dw;          // a power of two
    uint32_t *ring;
    uint64_t *wptr, *doorbell; // each written with one 64-bit store, in dwords that never wrap
    const uint32_t *rptr;      // as the command processor reports it
    const uint64_t *fence;     // the command processor writes the values of the programs' fences here
    uint64_t wptr_dw, fence_value;  // of the last submission of the owner
    uint64_t full_timeout_ns;  // how long a replay waits for room
    const uint32_t *wait_dwords;    // a packet that waits until a 64-bit word is at least a value; null: the host waits
    uint32_t wait_dw, wait_address_at, wait_value_at;  // its length, and where its address and value are, in dwords
    uint64_t fence_va;         // of `fence`, for packets of other rings
} zrt_ring;

zrt_status zrt_stream_create(zrt_context context, const char *name, int32_t priority, zrt_stream *stream);
zrt_status zrt_stream_open_ring(zrt_context context, const char *name, const zrt_ring *ring, zrt_stream *stream);
zrt_status zrt_ring_position(zrt_stream stream, uint64_t *wptr_dw, uint64_t *fence_value);
zrt_status zrt_stream_destroy(zrt_stream stream);
zrt_status zrt_stream_wait(zrt_stream stream, zrt_event event);  // later submissions start after it; the host goes on
// Wait for everything submitted. Return the first error of work that no earlier call returned. A stream keeps its
// 32 latest errors.
zrt_status zrt_stream_synchronize(zrt_stream stream, uint64_t timeout_ns);

zrt_status zrt_event_create(zrt_context context, zrt_event *event);
zrt_status zrt_event_destroy(zrt_event event);
zrt_status zrt_event_record(zrt_event event, zrt_stream stream);  // the end of what was submitted so far
zrt_status zrt_event_query(zrt_event event, int32_t *done);
zrt_status zrt_event_wait(zrt_event event, uint64_t timeout_ns);

// Graphs --------------------------------------------------------------------------------------------------

// A key of three small numbers. Images of models use the most tokens, sequences and rows of output of a replay. Keys
// are opaque to the library.
#define ZRT_KEY(first, second, third) ((uint64_t)(first) | (uint64_t)(second) << 20 | (uint64_t)(third) << 40)

typedef enum { ZRT_PROGRAM_TASKS = 1, ZRT_PROGRAM_DWORDS = 2 } zrt_program_kind;

// A program that its owner built. It must stay valid until `release` is called, once: by zrt_graph_remove, when
// the graph drops it for another, or when the graph or the context is destroyed.
typedef struct {
    uint32_t size_bytes;     // of this struct
    uint32_t kind;           // zrt_program_kind
    const void *tasks;       // TASKS: a task_list of kernels/native/include/task.h
    zrt_stream ring;         // DWORDS: the ring that they were encoded for, and that alone can replay them
    const uint32_t *dwords;  //   they are copied
    uint32_t dword_count;
    uint32_t fence_at;       //   where the 64-bit fence value is
    uint32_t fence_end;      //   how many dwords have been read for certain when the fence is reached
    uint32_t reserved;
    void (*release)(void *owner);
    void *owner;
} zrt_program;

typedef struct {
    zrt_buffer buffer;
    uint64_t offset_bytes, size_bytes;
} zrt_port;

// At most max_variants programs: one more drops the least recently replayed that is not in flight.
zrt_status zrt_graph_create(zrt_context context, const char *name, uint32_t max_variants, zrt_graph *graph);
zrt_status zrt_graph_destroy(zrt_graph graph);
zrt_status zrt_graph_adopt(zrt_graph graph, uint64_t key, const zrt_program *program);
zrt_status zrt_graph_remove(zrt_graph graph, uint64_t key);
zrt_status zrt_graph_find(zrt_graph graph, uint64_t key);  // ZRT_OK or ZRT_ERR_NO_VARIANT
zrt_status zrt_graph_keys(zrt_graph graph, uint64_t keys[], uint32_t capacity, uint32_t *count);  // least recently used first
// Name a part of a buffer that the program uses. Replays of the program count as uses of bound buffers.
zrt_status zrt_graph_bind(zrt_graph graph, uint64_t key, const char *port, zrt_buffer buffer, uint64_t offset_bytes,
                          uint64_t size_bytes);
zrt_status zrt_graph_port(zrt_graph graph, uint64_t key, const char *port, zrt_port *place);
// Submit the program for exactly this key; the nearest match is never used.
zrt_status zrt_graph_replay(zrt_graph graph, uint64_t key, zrt_stream stream);

// Plans ---------------------------------------------------------------------------------------------------

zrt_status zrt_plan_create(zrt_context context, zrt_plan *plan);
zrt_status zrt_plan_destroy(zrt_plan plan);
zrt_status zrt_plan_add(zrt_plan plan, zrt_graph graph, uint64_t key, zrt_stream stream, uint32_t *step);
zrt_status zrt_plan_after(zrt_plan plan, uint32_t step, uint32_t earlier);
zrt_status zrt_plan_execute(zrt_plan plan);  // nothing is submitted if a program is missing
zrt_status zrt_plan_wait(zrt_plan plan, uint64_t timeout_ns);

// Images --------------------------------------------------------------------------------------------------

// Open an image: allocate its buffers, map the model file and build its graphs. `model`: the path of the model
// file, null for the one that the image names. The file is checked, but its programs are machine code's
// arguments: open only images that you trust as much as a library.
zrt_status zrt_image_open(zrt_context context, const char *path, const char *model, zrt_image *image);
zrt_status zrt_image_close(zrt_image image);  // also its buffers, graphs and capsules
zrt_status zrt_image_graph(zrt_image image, const char *name, zrt_graph *graph);
zrt_status zrt_image_buffer(zrt_image image, const char *name, zrt_buffer *buffer);
zrt_status zrt_image_property(zrt_image image, const char *name, int64_t *value);

// Capsules ------------------------------------------------------------------------------------------------

// State is divided into groups of equal units, such as pages of keys and values. A capsule is a copy of chosen
// units of each group, in an order, with a note of the host's own, such as the tokens of a sequence. Restored
// into the units that it was taken from, or into others, it continues with the same bits. A fork is a restore
// into units of another sequence.
typedef struct {
    const char *group;
    const uint32_t *units;
    uint32_t count;
    uint32_t reserved;
} zrt_units;

zrt_status zrt_capsule_take(zrt_image image, const zrt_units *groups, uint32_t group_count, const void *note,
                            uint64_t note_bytes, zrt_capsule *capsule);
zrt_status zrt_capsule_restore(zrt_capsule capsule, const zrt_units *groups, uint32_t group_count);
zrt_status zrt_capsule_write(zrt_capsule capsule, const char *path);  // atomically
zrt_status zrt_capsule_read(zrt_image image, const char *path, zrt_capsule *capsule);
zrt_status zrt_capsule_units(zrt_capsule capsule, const char *group, uint32_t *count);
zrt_status zrt_capsule_note(zrt_capsule capsule, void *note, uint64_t capacity_bytes, uint64_t *size_bytes);
zrt_status zrt_capsule_destroy(zrt_capsule capsule);

#ifdef __cplusplus
}
#endif

#endif
