// Images and capsules: the records of an image, and what both files share. docs/exec-c.md has the formats.
#pragma once
#include "objects.h"

// The sections of an image, in order, each a multiple of 8 bytes.
enum { FILES, BUFFERS, GRAPHS, VARIANTS, PORTS, TASKS, RELOCATIONS, GROUPS, MEMBERS, PROPERTIES, STRINGS, BLOB, SECTIONS };

typedef struct {
    char magic[4];  // "ZRTX"
    uint32_t version, crc32, label;  // crc32: of everything after it; label: a string
    uint64_t size_bytes;
    char kernels[64];  // the kernel library's zrt_sources
    uint64_t counts[SECTIONS];
} image_header;

// A name is the offset of a string that ends with a zero.
typedef struct { uint32_t name, crc32; uint64_t size_bytes, header_bytes; } file_record;
typedef struct { uint32_t name, kind; uint64_t size_bytes, source; } buffer_record;  // source: a file, or an offset in the blob
enum { ZEROS, MAPPED_FILE, CONSTANT };
typedef struct { uint32_t name, variants; } graph_record;
typedef struct {
    uint64_t key;
    uint32_t ports, tasks, relocations, counts_buffer;
    uint64_t counts_offset, block_bytes;
} variant_record;
typedef struct { uint32_t name, buffer; uint64_t offset_bytes, size_bytes; } port_record;
typedef struct {
    uint32_t kernel, arguments_bytes;
    uint64_t arguments_offset, source;  // in the block, in the blob
    uint32_t dims[3], barrier, least, most;
} task_record;
typedef struct { uint64_t at, addend; uint32_t buffer, reserved; } relocation_record;
typedef struct { uint32_t name, members, units, reserved; } group_record;
typedef struct { uint32_t buffer, reserved; uint64_t offset_bytes, unit_bytes; } member_record;
typedef struct { uint32_t name, reserved; int64_t value; } property_record;

typedef struct {
    object base;
    uint8_t *content;  // the file
    const image_header *header;
    const uint8_t *sections[SECTIONS];
    uint32_t identity;  // of the state: the model, the label and the sizes of units
    zrt_buffer *buffers;
    zrt_graph *graphs;
} image;

#define RECORDS(image, section, type) ((const type *)(image)->sections[section])
#define COUNT(image, section) ((image)->header->counts[section])

static inline const char *string_at(const image *self, uint32_t offset) { return (const char *)self->sections[STRINGS] + offset; }

uint32_t zrt_crc32(uint32_t crc, const void *data, uint64_t size_bytes);  // zlib's; `crc`: of what comes before
zrt_status zrt_map_file(const char *path, uint8_t **memory, uint64_t *size_bytes);  // a regular file, read-only
