// Graphs: programs by exact key, with the buffers that they use. The rules are those of exec/graph.py.
#define _GNU_SOURCE
#include "objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VARIANTS 65536

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
        if (self->last[i] && !zrt_is_done(owner, i, self->last[i])) return true;
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
        return zrt_no_memory();
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

variant *zrt_find_variant(graph *self, uint64_t key) {
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
        return zrt_no_memory();
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
    variant *entry = zrt_find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    if (is_variant_busy(self->base.context, entry))
        return zrt_fail(ZRT_ERR_IN_FLIGHT, "graph %s: the last replay of key %#llx has not finished", self->name, (unsigned long long)key);
    take_out(self, self->latest);
    return ZRT_OK;
}

zrt_status zrt_graph_find(zrt_graph handle, uint64_t key) {
    graph *self = zrt_find(handle, GRAPH);
    if (!self) return ZRT_ERR_HANDLE;
    return zrt_find_variant(self, key) ? ZRT_OK : ZRT_ERR_NO_VARIANT;
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
    if ((status = zrt_check_range(bound, offset_bytes, size_bytes, false))) return status;
    variant *entry = zrt_find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    port *place = find_port(entry, name);
    if (!place) {
        port *ports = realloc(entry->ports, (entry->port_count + 1) * sizeof *ports);
        if (!ports) return zrt_no_memory();
        entry->ports = ports;
        place = &ports[entry->port_count];
        *place = (port){.name = strdup(name)};
        if (!place->name) return zrt_no_memory();
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
    variant *entry = zrt_find_variant(self, key);
    if (!entry) return ZRT_ERR_NO_VARIANT;
    const port *place = find_port(entry, name);
    if (!place) return zrt_fail(ZRT_ERR_NOT_FOUND, "graph %s, key %#llx: no port %s", self->name, (unsigned long long)key, name);
    *result = (zrt_port){place->buffer->base.handle, place->offset_bytes, place->size_bytes};
    return ZRT_OK;
}

zrt_status zrt_check_replay(graph *self, uint64_t key, const stream *on, variant **entry) {
    if (self->base.context != on->base.context) return zrt_fail(ZRT_ERR_HANDLE, "graph %s: stream %s belongs to another context", self->name, on->name);
    if (!(*entry = zrt_find_variant(self, key))) return ZRT_ERR_NO_VARIANT;
    bool is_dwords = (*entry)->program.kind == ZRT_PROGRAM_DWORDS;
    if (is_dwords != on->is_ring || (is_dwords && (*entry)->program.ring != on->base.handle))
        return zrt_fail(ZRT_ERR_UNSUPPORTED, "graph %s: the program of key %#llx cannot run on stream %s", self->name, (unsigned long long)key, on->name);
    return ZRT_OK;
}

zrt_status zrt_replay(graph *self, variant *entry, stream *on) {
    zrt_status status = on->is_ring ? zrt_submit_dwords(on, &entry->program) : zrt_submit_job(on, (job){.graph = self, .variant = entry});
    if (status) return status;
    entry->used = ++self->clock;
    entry->last[on->index] = on->base.context->times[on->index].submitted;
    for (uint32_t i = 0; i < entry->port_count; i++) zrt_use_buffer(entry->ports[i].buffer, on);
    return ZRT_OK;
}

zrt_status zrt_graph_replay(zrt_graph handle, uint64_t key, zrt_stream stream_handle) {
    graph *self = zrt_find(handle, GRAPH);
    stream *on = self ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    variant *entry;
    zrt_status status = zrt_check_replay(self, key, on, &entry);
    return status ? status : zrt_replay(self, entry, on);
}
