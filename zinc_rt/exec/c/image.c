// Images: files with buffers, graphs and programs. backends/cpu/image.py writes them.
#define _GNU_SOURCE
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_VERSION 1
#define COUNTS_BYTES 32
#define SYMBOLS (COUNTS_BYTES / 4)
#define SAMPLES 64  // of a model file, which tell it from another one with an equal header
#define SAMPLE_BYTES 4096
#define MOST_UNITS (1u << 26)
#define NO_BUFFER 0xffffffffu  // a relocation into the program's own block

static const uint32_t RECORD_BYTES[SECTIONS] = {
    sizeof(file_record), sizeof(buffer_record), sizeof(graph_record), sizeof(variant_record), sizeof(port_record), sizeof(task_record),
    sizeof(relocation_record), sizeof(group_record), sizeof(member_record), sizeof(property_record), 1, 1,
};

static uint32_t crc_table[256];

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        crc_table[i] = value;
    }
}

// zlib's CRC-32. `crc`: of what comes before, 0 at the start.
uint32_t zrt_crc32(uint32_t crc, const void *data, uint64_t size_bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_crc_table);
    crc = ~crc;
    for (const uint8_t *at = data, *end = at + size_bytes; at < end; at++) crc = crc >> 8 ^ crc_table[(crc ^ *at) & 0xff];
    return ~crc;
}

// Files ---------------------------------------------------------------------------------------------------

static void unmap(uint8_t *memory, uint64_t size_bytes) { munmap(memory, size_bytes); }

zrt_status zrt_map_file(const char *path, uint8_t **memory, uint64_t *size_bytes) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a FIFO would wait for its writer
    if (file < 0) return zrt_fail(errno == ENOENT ? ZRT_ERR_NOT_FOUND : ZRT_ERR_FILE, "%s: %s", path, strerror(errno));
    zrt_status status = ZRT_OK;
    if (fstat(file, &about)) status = zrt_fail(ZRT_ERR_FILE, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode) || !about.st_size) status = zrt_fail(ZRT_ERR_FILE, "%s: not a regular file, or empty", path);
    else if ((*memory = mmap(0, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)
        status = zrt_fail(ZRT_ERR_FILE, "%s: %s", path, strerror(errno));
    close(file);
    if (!status) *size_bytes = (uint64_t)about.st_size;
    return status;
}

// Images --------------------------------------------------------------------------------------------------

static zrt_status damaged(const char *path, const char *what) {
    return zrt_fail(ZRT_ERR_FORMAT, "%s: %s; write the image again", path, what);
}

// Find the sections and check every number that a later step uses as an index, an offset or a size.
static zrt_status check_content(image *self, const char *path, uint64_t size_bytes) {
    const image_header *header = self->header = (const image_header *)self->content;
    if (size_bytes < sizeof *header || memcmp(header->magic, "ZRTX", 4)) return damaged(path, "not an image");
    if (header->version != IMAGE_VERSION)
        return zrt_fail(ZRT_ERR_VERSION, "%s: image format %u, this library reads %d", path, header->version, IMAGE_VERSION);
    uint64_t at = sizeof *header;
    if (header->size_bytes != size_bytes) return damaged(path, "incomplete");
    if (zrt_crc32(0, self->content + 12, size_bytes - 12) != header->crc32) return damaged(path, "the checksum does not match");
    for (int i = 0; i < SECTIONS; i++) {
        if (header->counts[i] > (size_bytes - at) / RECORD_BYTES[i]) return damaged(path, "a section exceeds the file");
        self->sections[i] = self->content + at;
        at += header->counts[i] * RECORD_BYTES[i];
        if (at % 8) return damaged(path, "a section is not aligned");
    }
    if (at != size_bytes || !COUNT(self, STRINGS) || self->sections[STRINGS][COUNT(self, STRINGS) - 1])
        return damaged(path, "the sections do not fill the file");
    uint64_t strings = COUNT(self, STRINGS), blob = COUNT(self, BLOB), buffers = COUNT(self, BUFFERS);
    uint64_t variants = 0, ports = 0, tasks = 0, relocations = 0, members = 0;
    bool good = header->label < strings && memchr(header->kernels, 0, sizeof header->kernels);
    for (uint64_t i = 0; i < COUNT(self, FILES); i++) good &= RECORDS(self, FILES, file_record)[i].name < strings;
    for (uint64_t i = 0; i < buffers && good; i++) {
        const buffer_record *item = &RECORDS(self, BUFFERS, buffer_record)[i];
        good = item->name < strings && item->size_bytes && item->kind <= CONSTANT;
        if (item->kind == MAPPED_FILE)
            good = good && item->source < COUNT(self, FILES) && item->size_bytes == RECORDS(self, FILES, file_record)[item->source].size_bytes;
        if (item->kind == CONSTANT) good = good && item->source <= blob && item->size_bytes <= blob - item->source;
    }
    for (uint64_t i = 0; i < COUNT(self, GRAPHS); i++) {
        good &= RECORDS(self, GRAPHS, graph_record)[i].name < strings;
        variants += RECORDS(self, GRAPHS, graph_record)[i].variants;
    }
    good = good && variants == COUNT(self, VARIANTS);
    for (uint64_t i = 0; i < COUNT(self, GROUPS); i++) {
        const group_record *item = &RECORDS(self, GROUPS, group_record)[i];
        good = good && item->name < strings && item->units && item->units <= MOST_UNITS;
        members += item->members;
    }
    good = good && members == COUNT(self, MEMBERS);
    for (uint64_t i = 0; i < COUNT(self, PROPERTIES); i++) good = good && RECORDS(self, PROPERTIES, property_record)[i].name < strings;
    if (!good) return damaged(path, "a record names what is not in the file");
    for (uint64_t i = 0, at = 0; i < COUNT(self, GROUPS); i++) {
        const group_record *group = &RECORDS(self, GROUPS, group_record)[i];
        for (uint32_t j = 0; j < group->members; j++, at++) {
            const member_record *item = &RECORDS(self, MEMBERS, member_record)[at];
            const buffer_record *of = item->buffer < buffers ? &RECORDS(self, BUFFERS, buffer_record)[item->buffer] : 0;
            if (!of || of->kind != ZEROS || !item->unit_bytes || item->offset_bytes > of->size_bytes ||
                item->unit_bytes > (of->size_bytes - item->offset_bytes) / group->units)
                return damaged(path, "a unit of state is outside its buffer");
        }
    }
    for (uint64_t i = 0; i < variants; i++) {
        const variant_record *item = &RECORDS(self, VARIANTS, variant_record)[i];
        const buffer_record *counts = item->counts_buffer < buffers ? &RECORDS(self, BUFFERS, buffer_record)[item->counts_buffer] : 0;
        if (!counts || item->counts_offset % 4 || counts->size_bytes < COUNTS_BYTES || item->counts_offset > counts->size_bytes - COUNTS_BYTES)
            return damaged(path, "the counts of a program are outside their buffer");
        if (item->ports > COUNT(self, PORTS) - ports || item->tasks > COUNT(self, TASKS) - tasks ||
            item->relocations > COUNT(self, RELOCATIONS) - relocations)
            return damaged(path, "a program has more records than the file");
        for (uint32_t j = 0; j < item->ports; j++, ports++) {
            const port_record *port = &RECORDS(self, PORTS, port_record)[ports];
            if (port->name >= strings || port->buffer >= buffers) return damaged(path, "a port names what is not in the file");
        }
        for (uint32_t j = 0; j < item->tasks; j++, tasks++) {
            const task_record *task = &RECORDS(self, TASKS, task_record)[tasks];
            bool inside = task->kernel < strings && task->least && task->least <= task->most &&
                          task->source <= blob && task->arguments_bytes <= blob - task->source &&
                          task->arguments_offset <= item->block_bytes && task->arguments_bytes <= item->block_bytes - task->arguments_offset;
            for (int k = 0; k < 3; k++) inside = inside && (!(task->dims[k] & IS_COUNT) || (task->dims[k] & ~IS_COUNT) < SYMBOLS);
            if (!inside) return damaged(path, "a task's arguments are outside their block");
        }
        for (uint32_t j = 0; j < item->relocations; j++, relocations++) {
            const relocation_record *entry = &RECORDS(self, RELOCATIONS, relocation_record)[relocations];
            uint64_t size = entry->buffer == NO_BUFFER ? item->block_bytes
                            : entry->buffer < buffers  ? RECORDS(self, BUFFERS, buffer_record)[entry->buffer].size_bytes
                                                       : 0;
            if (item->block_bytes < 8 || entry->at > item->block_bytes - 8 || entry->at % 4 || entry->addend >= size)
                return damaged(path, "an address is outside its buffer");
        }
    }
    if (ports != COUNT(self, PORTS) || tasks != COUNT(self, TASKS) || relocations != COUNT(self, RELOCATIONS))
        return damaged(path, "records belong to no program");
    return ZRT_OK;
}

static uint32_t identify(const image *self) {
    uint32_t crc = zrt_crc32(0, string_at(self, self->header->label), strlen(string_at(self, self->header->label)));
    for (uint64_t i = 0; i < COUNT(self, FILES); i++) {
        const file_record *file = &RECORDS(self, FILES, file_record)[i];
        crc = zrt_crc32(crc, &file->crc32, 4);
        crc = zrt_crc32(crc, &file->size_bytes, 8);
    }
    for (uint64_t i = 0, at = 0; i < COUNT(self, GROUPS); i++) {
        const group_record *group = &RECORDS(self, GROUPS, group_record)[i];
        crc = zrt_crc32(crc, string_at(self, group->name), strlen(string_at(self, group->name)) + 1);
        for (uint32_t j = 0; j < group->members; j++, at++) crc = zrt_crc32(crc, &RECORDS(self, MEMBERS, member_record)[at].unit_bytes, 8);
    }
    return crc;
}

// The same bytes as image.py's `sample_file`: the header, then SAMPLES pieces at even distances.
static uint32_t sample_file(const uint8_t *content, uint64_t size_bytes, uint64_t header_bytes) {
    uint32_t crc = zrt_crc32(0, content, header_bytes);
    uint64_t data_bytes = size_bytes - header_bytes, piece = data_bytes < SAMPLE_BYTES ? data_bytes : SAMPLE_BYTES;
    for (uint64_t i = 0; i < SAMPLES; i++) crc = zrt_crc32(crc, content + header_bytes + (data_bytes - piece) * i / (SAMPLES - 1), piece);
    return crc;
}

static zrt_status open_model(image *self, uint64_t number, const char *given, uint8_t **content) {
    const file_record *record = &RECORDS(self, FILES, file_record)[number];
    const char *path = given ? given : string_at(self, record->name);
    uint64_t size_bytes;
    zrt_status status = zrt_map_file(path, content, &size_bytes);
    if (status) return status;
    if (size_bytes == record->size_bytes && record->header_bytes <= size_bytes &&
        sample_file(*content, size_bytes, record->header_bytes) == record->crc32)
        return ZRT_OK;
    munmap(*content, size_bytes);
    return zrt_fail(ZRT_ERR_VERSION, "%s is not the model file that the image was written for", path);
}

static zrt_status make_buffers(image *self, const char *model) {
    if (!(self->buffers = calloc(COUNT(self, BUFFERS) + 1, sizeof *self->buffers))) return zrt_no_memory();
    for (uint64_t i = 0; i < COUNT(self, BUFFERS); i++) {
        const buffer_record *record = &RECORDS(self, BUFFERS, buffer_record)[i];
        uint8_t *memory = 0;
        if (record->kind == MAPPED_FILE) {
            zrt_status status = open_model(self, record->source, model, &memory);
            if (status) return status;
        } else if (!(memory = zrt_allocate(record->size_bytes))) {
            return zrt_fail(ZRT_ERR_MEMORY, "no memory for buffer %s of %llu bytes", string_at(self, record->name), (unsigned long long)record->size_bytes);
        }
        if (record->kind == CONSTANT) memcpy(memory, self->sections[BLOB] + record->source, record->size_bytes);
        void (*release)(uint8_t *, uint64_t) = record->kind == MAPPED_FILE ? unmap : zrt_release;
        buffer *made = zrt_new_buffer(self->base.context, string_at(self, record->name), memory, record->size_bytes, release);
        if (!made) {
            release(memory, record->size_bytes);
            return ZRT_ERR_MEMORY;
        }
        made->constant = record->kind != ZEROS;
        self->buffers[i] = made->base.handle;
    }
    return ZRT_OK;
}

typedef struct {
    task_list list;
    uint8_t *block;
    uint64_t block_bytes;
    task *tasks;
    cell *cells;
} program;

static void release_program(void *owner) {
    program *self = owner;
    zrt_release(self->block, self->block_bytes);
    zrt_release((uint8_t *)self->tasks, self->list.count * sizeof(task));
    zrt_release((uint8_t *)self->cells, self->list.count * sizeof(cell));
    free(self);
}

static uint64_t address_of(const image *self, uint32_t number) {
    buffer *found = zrt_find(self->buffers[number], BUFFER);
    return (uint64_t)(uintptr_t)found->memory;
}

// Fill a program: its block with the tasks' arguments, into which the addresses are written.
static zrt_status fill_program(const image *self, const variant_record *record, const task_record *tasks, const relocation_record *relocations,
                               program *made) {
    made->block_bytes = record->block_bytes;
    made->list.count = record->tasks;
    made->block = zrt_allocate(record->block_bytes);
    made->tasks = (task *)zrt_allocate(record->tasks * sizeof(task));
    made->cells = (cell *)zrt_allocate(record->tasks * sizeof(cell));
    if (!made->block || !made->tasks || !made->cells) return zrt_no_memory();
    for (uint32_t i = 0; i < record->tasks; i++) {
        memcpy(made->block + tasks[i].arguments_offset, self->sections[BLOB] + tasks[i].source, tasks[i].arguments_bytes);
        task *item = &made->tasks[i];
        *item = (task){.arguments = made->block + tasks[i].arguments_offset, .barrier = tasks[i].barrier, .least = tasks[i].least, .most = tasks[i].most};
        memcpy(item->dims, tasks[i].dims, sizeof item->dims);
        *(void **)&item->run = zrt_find_kernel(self->base.context, string_at(self, tasks[i].kernel));
        if (!item->run) return zrt_fail(ZRT_ERR_VERSION, "the kernel library has no kernel %s", string_at(self, tasks[i].kernel));
    }
    for (uint32_t i = 0; i < record->relocations; i++) {
        uint32_t number = relocations[i].buffer;
        uint64_t address = relocations[i].addend + (number == NO_BUFFER ? (uint64_t)(uintptr_t)made->block : address_of(self, number));
        memcpy(made->block + relocations[i].at, &address, 8);
    }
    made->list = (task_list){.tasks = made->tasks, .cells = made->cells, .count = record->tasks,
                             .counts = (const _Atomic int32_t *)(uintptr_t)(address_of(self, record->counts_buffer) + record->counts_offset)};
    return ZRT_OK;
}

static zrt_status make_graphs(image *self) {
    if (!(self->graphs = calloc(COUNT(self, GRAPHS) + 1, sizeof *self->graphs))) return zrt_no_memory();
    const variant_record *record = RECORDS(self, VARIANTS, variant_record);
    const port_record *port = RECORDS(self, PORTS, port_record);
    const task_record *tasks = RECORDS(self, TASKS, task_record);
    const relocation_record *relocations = RECORDS(self, RELOCATIONS, relocation_record);
    for (uint64_t i = 0; i < COUNT(self, GRAPHS); i++) {
        const graph_record *graph = &RECORDS(self, GRAPHS, graph_record)[i];
        uint32_t most = graph->variants < 64 ? 64 : graph->variants;
        zrt_status status = zrt_graph_create(((object *)self->base.context)->handle, string_at(self, graph->name), most, &self->graphs[i]);
        for (uint32_t j = 0; j < graph->variants && !status; j++, record++) {
            program *made = calloc(1, sizeof *made);
            if (!made) return zrt_no_memory();
            zrt_program adopted = {.size_bytes = sizeof adopted, .kind = ZRT_PROGRAM_TASKS, .tasks = &made->list, .release = release_program, .owner = made};
            status = fill_program(self, record, tasks, relocations, made);
            if (!status) status = zrt_graph_adopt(self->graphs[i], record->key, &adopted);
            if (status) release_program(made);
            for (uint32_t k = 0; k < record->ports && !status; k++, port++)
                status = zrt_graph_bind(self->graphs[i], record->key, string_at(self, port->name), self->buffers[port->buffer], port->offset_bytes, port->size_bytes);
            tasks += record->tasks;
            relocations += record->relocations;
        }
        if (status) return status;
    }
    return ZRT_OK;
}

static void destroy_image(object *base) {
    image *self = (image *)base;
    if (self->content) munmap(self->content, self->header->size_bytes);
    free(self->buffers);
    free(self->graphs);
}

static void drop_parts(image *self) {
    for (uint64_t i = 0; self->graphs && i < COUNT(self, GRAPHS); i++) {
        object *part = zrt_find(self->graphs[i], GRAPH);
        if (part) zrt_drop(part);
    }
    for (uint64_t i = 0; self->buffers && i < COUNT(self, BUFFERS); i++) {
        object *part = zrt_find(self->buffers[i], BUFFER);
        if (part) zrt_drop(part);
    }
}

static zrt_status fill_image(image *self, const char *path, uint64_t size_bytes, const char *model) {
    zrt_status status = check_content(self, path, size_bytes);
    if (status) return status;
    const char *kernels = zrt_kernels_id(self->base.context);
    if (!kernels) return zrt_fail(ZRT_ERR_UNSUPPORTED, "%s: the context was created without a kernel library", path);
    if (strcmp(kernels, self->header->kernels))
        return zrt_fail(ZRT_ERR_VERSION, "%s: written for other kernels (%.12s, the library has %.12s); write the image again", path,
                        self->header->kernels, kernels);
    if (model && COUNT(self, FILES) != 1)
        return zrt_fail(ZRT_ERR_ARGUMENT, "%s names %llu model files; only one can be replaced", path, (unsigned long long)COUNT(self, FILES));
    self->identity = identify(self);
    status = make_buffers(self, model);
    return status ? status : make_graphs(self);
}

zrt_status zrt_image_open(zrt_context context_handle, const char *path, const char *model, zrt_image *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!path || !handle) return zrt_fail(ZRT_ERR_ARGUMENT, "an image needs a path and a place for its handle");
    uint64_t size_bytes;
    uint8_t *content;
    zrt_status status = zrt_map_file(path, &content, &size_bytes);
    if (status) return status;
    image *self = zrt_new(owner, IMAGE, sizeof *self, destroy_image);
    if (!self) {
        munmap(content, size_bytes);
        return ZRT_ERR_MEMORY;
    }
    self->content = content;
    if ((status = fill_image(self, path, size_bytes, model))) {
        char message[512];
        snprintf(message, sizeof message, "%s", zrt_last_error());
        if (self->sections[BLOB]) drop_parts(self);
        munmap(content, size_bytes);
        self->content = 0;
        zrt_drop(&self->base);
        return zrt_fail(status, "%s", message);
    }
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_image_close(zrt_image handle) {
    image *self = zrt_find(handle, IMAGE);
    if (!self) return ZRT_ERR_HANDLE;
    for (uint64_t i = 0; i < COUNT(self, BUFFERS); i++) {
        buffer *part = zrt_find(self->buffers[i], BUFFER);
        if (part && zrt_is_busy(part)) return zrt_fail(ZRT_ERR_IN_FLIGHT, "image: work that uses buffer %s has not finished", part->name);
    }
    drop_parts(self);
    zrt_drop(&self->base);
    return ZRT_OK;
}

zrt_status zrt_image_graph(zrt_image handle, const char *name, zrt_graph *result) {
    image *self = zrt_find(handle, IMAGE);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = zrt_check_name(name, "the graph's name");
    if (status) return status;
    if (!result) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the handle of graph %s", name);
    for (uint64_t i = 0; i < COUNT(self, GRAPHS); i++)
        if (!strcmp(string_at(self, RECORDS(self, GRAPHS, graph_record)[i].name), name)) {
            *result = self->graphs[i];
            return ZRT_OK;
        }
    return zrt_fail(ZRT_ERR_NOT_FOUND, "the image has no graph %s", name);
}

zrt_status zrt_image_buffer(zrt_image handle, const char *name, zrt_buffer *result) {
    image *self = zrt_find(handle, IMAGE);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = zrt_check_name(name, "the buffer's name");
    if (status) return status;
    if (!result) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the handle of buffer %s", name);
    for (uint64_t i = 0; i < COUNT(self, BUFFERS); i++)
        if (!strcmp(string_at(self, RECORDS(self, BUFFERS, buffer_record)[i].name), name)) {
            *result = self->buffers[i];
            return ZRT_OK;
        }
    return zrt_fail(ZRT_ERR_NOT_FOUND, "the image has no buffer %s", name);
}

zrt_status zrt_image_property(zrt_image handle, const char *name, int64_t *value) {
    image *self = zrt_find(handle, IMAGE);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_status status = zrt_check_name(name, "the property's name");
    if (status) return status;
    if (!value) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for property %s", name);
    for (uint64_t i = 0; i < COUNT(self, PROPERTIES); i++) {
        const property_record *item = &RECORDS(self, PROPERTIES, property_record)[i];
        if (strcmp(string_at(self, item->name), name)) continue;
        *value = item->value;
        return ZRT_OK;
    }
    return zrt_fail(ZRT_ERR_NOT_FOUND, "the image has no property %s", name);
}
