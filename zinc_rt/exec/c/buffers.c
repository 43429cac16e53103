// Buffers: memory, the host's access to it, and copies in a stream's order.
#define _GNU_SOURCE
#include "objects.h"

#include <stdlib.h>
#include <string.h>

bool zrt_is_busy(buffer *self) {
    for (uint32_t i = 0; i < STREAMS; i++)
        if (self->uses[i] && !zrt_is_done(self->base.context, i, self->uses[i])) return true;
    return false;
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
        zrt_no_memory();
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

zrt_status zrt_check_range(const buffer *self, uint64_t offset_bytes, uint64_t size_bytes, bool writes) {
    if (offset_bytes > self->size_bytes || size_bytes > self->size_bytes - offset_bytes)
        return zrt_fail(ZRT_ERR_RANGE, "%llu bytes at offset %llu exceed the %llu bytes of buffer %s", (unsigned long long)size_bytes,
                        (unsigned long long)offset_bytes, (unsigned long long)self->size_bytes, self->name);
    if (writes && self->constant) return zrt_fail(ZRT_ERR_UNSUPPORTED, "buffer %s is a file's memory, which cannot be written", self->name);
    return ZRT_OK;
}

static zrt_status check_host_access(buffer *self, uint64_t offset_bytes, const void *data, uint64_t size_bytes, bool writes) {
    if (!data && size_bytes) return zrt_fail(ZRT_ERR_ARGUMENT, "buffer %s: the data is a null pointer", self->name);
    zrt_status status = zrt_check_range(self, offset_bytes, size_bytes, writes);
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

void zrt_use_buffer(buffer *self, const stream *stream) {
    self->uses[stream->index] = self->base.context->times[stream->index].submitted;
}

zrt_status zrt_buffer_copy(zrt_buffer target_handle, uint64_t target_offset_bytes, zrt_buffer source_handle,
                           uint64_t source_offset_bytes, uint64_t size_bytes, zrt_stream stream_handle) {
    buffer *target = zrt_find(target_handle, BUFFER), *source = target ? zrt_find(source_handle, BUFFER) : 0;
    stream *on = source ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (target->base.context != source->base.context || target->base.context != on->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "copy %s to %s: the objects belong to different contexts", source->name, target->name);
    zrt_status status = zrt_check_range(source, source_offset_bytes, size_bytes, false);
    if (!status) status = zrt_check_range(target, target_offset_bytes, size_bytes, true);
    if (status) return status;
    uint8_t *to = target->memory + target_offset_bytes, *from = source->memory + source_offset_bytes;
    if (size_bytes && to < from + size_bytes && from < to + size_bytes)
        return zrt_fail(ZRT_ERR_RANGE, "copy %s to %s: source and target overlap; copy through another buffer", source->name, target->name);
    if (on->is_ring) return zrt_fail(ZRT_ERR_UNSUPPORTED, "stream %s is a ring; adopt a program that copies", on->name);
    if ((status = zrt_submit_job(on, (job){.target = to, .source = from, .size_bytes = size_bytes}))) return status;
    zrt_use_buffer(source, on);
    zrt_use_buffer(target, on);
    return ZRT_OK;
}

zrt_status zrt_buffer_fill(zrt_buffer handle, uint64_t offset_bytes, uint64_t size_bytes, zrt_stream stream_handle) {
    buffer *self = zrt_find(handle, BUFFER);
    stream *on = self ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (self->base.context != on->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "fill of %s: the stream belongs to another context", self->name);
    zrt_status status = zrt_check_range(self, offset_bytes, size_bytes, true);
    if (status) return status;
    if (on->is_ring) return zrt_fail(ZRT_ERR_UNSUPPORTED, "stream %s is a ring; adopt a program that fills", on->name);
    if ((status = zrt_submit_job(on, (job){.target = self->memory + offset_bytes, .size_bytes = size_bytes}))) return status;
    zrt_use_buffer(self, on);
    return ZRT_OK;
}
