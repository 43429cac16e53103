// Capsules: copies of chosen units of an image's state, in memory and in files.
#define _GNU_SOURCE
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CAPSULE_VERSION 1

typedef struct {
    object base;
    zrt_image image;
    uint32_t identity, group_count;
    uint32_t *counts;  // units of each group of the image
    uint8_t *note, *data;
    uint64_t note_bytes, data_bytes;
} capsule;

typedef struct {
    char magic[4];  // "ZCAP"
    uint32_t version, crc32, identity;
    uint64_t note_bytes, data_bytes;
    uint32_t group_count, reserved;
} capsule_header;  // then the counts of units, padded to 8 bytes, the note, the data

static void destroy_capsule(object *base) {
    capsule *self = (capsule *)base;
    free(self->counts);
    free(self->note);
    free(self->data);
}

static int64_t find_group(const image *self, const char *name) {
    for (uint64_t i = 0; i < COUNT(self, GROUPS); i++)
        if (!strcmp(string_at(self, RECORDS(self, GROUPS, group_record)[i].name), name)) return (int64_t)i;
    zrt_fail(ZRT_ERR_NOT_FOUND, "the image has no group %s", name);
    return -1;
}

// The chosen units of each group of the image; those that the caller leaves out have none. `once`: no unit twice.
static zrt_status choose_units(const image *self, const zrt_units *groups, uint32_t count, bool once, const zrt_units **chosen) {
    if (!groups && count) return zrt_fail(ZRT_ERR_ARGUMENT, "the groups are a null pointer");
    for (uint32_t i = 0; i < count; i++) {
        zrt_status status = zrt_check_name(groups[i].group, "the group's name");
        if (status) return status;
        int64_t at = find_group(self, groups[i].group);
        if (at < 0) return ZRT_ERR_NOT_FOUND;
        if (chosen[at]) return zrt_fail(ZRT_ERR_EXISTS, "group %s is named twice", groups[i].group);
        if (!groups[i].units && groups[i].count) return zrt_fail(ZRT_ERR_ARGUMENT, "group %s: the units are a null pointer", groups[i].group);
        uint32_t units = RECORDS(self, GROUPS, group_record)[at].units;
        uint8_t *seen = once ? calloc(units, 1) : 0;
        if (once && !seen) return zrt_no_memory();
        for (uint32_t j = 0; j < groups[i].count && !status; j++) {
            uint32_t unit = groups[i].units[j];
            if (unit >= units) status = zrt_fail(ZRT_ERR_RANGE, "group %s has %u units, no unit %u", groups[i].group, units, unit);
            else if (once && seen[unit]++) status = zrt_fail(ZRT_ERR_EXISTS, "group %s: unit %u is named twice", groups[i].group, unit);
        }
        free(seen);
        if (status) return status;
        chosen[at] = &groups[i];
    }
    return ZRT_OK;
}

// Copy units between the image's buffers and `data`, in the order of groups, members and units. Without `data`,
// only check that no work uses them. Returns the bytes.
static zrt_status move_units(const image *self, const zrt_units **chosen, uint8_t *data, bool restores, uint64_t *size_bytes) {
    uint64_t at = 0;
    const member_record *member = RECORDS(self, MEMBERS, member_record);
    for (uint64_t i = 0; i < COUNT(self, GROUPS); i++) {
        uint32_t count = chosen[i] ? chosen[i]->count : 0;
        for (uint32_t j = 0; j < RECORDS(self, GROUPS, group_record)[i].members; j++, member++) {
            buffer *of = zrt_find(self->buffers[member->buffer], BUFFER);
            if (!of) return ZRT_ERR_HANDLE;
            if (count && zrt_is_busy(of))
                return zrt_fail(ZRT_ERR_IN_FLIGHT, "buffer %s: work that uses it has not finished; wait for its stream first", of->name);
            for (uint32_t k = 0; k < count; k++, at += member->unit_bytes) {
                uint8_t *unit = of->memory + member->offset_bytes + chosen[i]->units[k] * member->unit_bytes;
                if (data && restores) memcpy(unit, data + at, member->unit_bytes);
                else if (data) memcpy(data + at, unit, member->unit_bytes);
            }
        }
    }
    *size_bytes = at;
    return ZRT_OK;
}

static uint64_t count_data_bytes(const image *self, const uint32_t *counts) {
    uint64_t total = 0;
    const member_record *member = RECORDS(self, MEMBERS, member_record);
    for (uint64_t i = 0; i < COUNT(self, GROUPS); i++)
        for (uint32_t j = 0; j < RECORDS(self, GROUPS, group_record)[i].members; j++, member++) total += counts[i] * member->unit_bytes;
    return total;
}

static capsule *new_capsule(const image *of, uint64_t note_bytes, uint64_t data_bytes) {
    capsule *self = zrt_new(of->base.context, CAPSULE, sizeof *self, destroy_capsule);
    if (!self) return 0;
    self->image = of->base.handle;
    self->identity = of->identity;
    self->group_count = (uint32_t)COUNT(of, GROUPS);
    self->note_bytes = note_bytes;
    self->data_bytes = data_bytes;
    self->counts = calloc(self->group_count + 1, sizeof *self->counts);
    self->note = note_bytes >> 47 ? 0 : malloc(note_bytes + 1);
    self->data = data_bytes >> 47 ? 0 : malloc(data_bytes + 1);
    if (self->counts && self->note && self->data) return self;
    zrt_drop(&self->base);
    zrt_no_memory();
    return 0;
}

zrt_status zrt_capsule_take(zrt_image image_handle, const zrt_units *groups, uint32_t group_count, const void *note, uint64_t note_bytes,
                            zrt_capsule *handle) {
    image *of = zrt_find(image_handle, IMAGE);
    if (!of) return ZRT_ERR_HANDLE;
    if (!handle || (!note && note_bytes)) return zrt_fail(ZRT_ERR_ARGUMENT, "a capsule needs its note and a place for its handle");
    const zrt_units **chosen = calloc(COUNT(of, GROUPS) + 1, sizeof *chosen);
    if (!chosen) return zrt_no_memory();
    uint64_t size_bytes;
    zrt_status status = choose_units(of, groups, group_count, false, chosen);
    if (!status) status = move_units(of, chosen, 0, false, &size_bytes);
    capsule *self = status ? 0 : new_capsule(of, note_bytes, size_bytes);
    if (!status && !self) status = ZRT_ERR_MEMORY;
    if (!status) {
        move_units(of, chosen, self->data, false, &size_bytes);
        for (uint32_t i = 0; i < self->group_count; i++) self->counts[i] = chosen[i] ? chosen[i]->count : 0;
        if (note_bytes) memcpy(self->note, note, note_bytes);
        *handle = self->base.handle;
    }
    free(chosen);
    return status;
}

zrt_status zrt_capsule_restore(zrt_capsule handle, const zrt_units *groups, uint32_t group_count) {
    capsule *self = zrt_find(handle, CAPSULE);
    image *of = self ? zrt_find(self->image, IMAGE) : 0;
    if (!of) return ZRT_ERR_HANDLE;
    const zrt_units **chosen = calloc(COUNT(of, GROUPS) + 1, sizeof *chosen);
    if (!chosen) return zrt_no_memory();
    uint64_t size_bytes;
    zrt_status status = choose_units(of, groups, group_count, true, chosen);
    for (uint32_t i = 0; i < self->group_count && !status; i++) {
        uint32_t count = chosen[i] ? chosen[i]->count : 0;
        if (count != self->counts[i])
            status = zrt_fail(ZRT_ERR_RANGE, "the capsule has %u units of group %s, not %u", self->counts[i],
                              string_at(of, RECORDS(of, GROUPS, group_record)[i].name), count);
    }
    if (!status) status = move_units(of, chosen, 0, true, &size_bytes);
    if (!status) status = move_units(of, chosen, self->data, true, &size_bytes);
    free(chosen);
    return status;
}

static uint64_t counts_bytes(uint32_t group_count) { return (4ull * group_count + 7) & ~7ull; }

static bool write_all(FILE *file, const void *data, uint64_t size_bytes) { return !size_bytes || fwrite(data, 1, size_bytes, file) == size_bytes; }

zrt_status zrt_capsule_write(zrt_capsule handle, const char *path) {
    capsule *self = zrt_find(handle, CAPSULE);
    if (!self) return ZRT_ERR_HANDLE;
    if (!path || !*path) return zrt_fail(ZRT_ERR_ARGUMENT, "a capsule is written to a path");
    char partial[4096];
    if (snprintf(partial, sizeof partial, "%s.%ld.partial", path, (long)getpid()) >= (int)sizeof partial)
        return zrt_fail(ZRT_ERR_ARGUMENT, "the path is too long");
    capsule_header header = {.magic = {'Z', 'C', 'A', 'P'}, .version = CAPSULE_VERSION, .identity = self->identity, .note_bytes = self->note_bytes,
                             .data_bytes = self->data_bytes, .group_count = self->group_count};
    uint8_t padding[8] = {0};
    uint64_t padding_bytes = counts_bytes(self->group_count) - 4ull * self->group_count;
    uint32_t crc = zrt_crc32(0, &header.identity, sizeof header - 12);
    crc = zrt_crc32(crc, self->counts, 4ull * self->group_count);
    crc = zrt_crc32(crc, padding, padding_bytes);
    crc = zrt_crc32(crc, self->note, self->note_bytes);
    header.crc32 = zrt_crc32(crc, self->data, self->data_bytes);
    FILE *file = fopen(partial, "wbe");
    if (!file) return zrt_fail(ZRT_ERR_FILE, "%s: %s", partial, strerror(errno));
    bool good = write_all(file, &header, sizeof header) && write_all(file, self->counts, 4ull * self->group_count) &&
                write_all(file, padding, padding_bytes) && write_all(file, self->note, self->note_bytes) &&
                write_all(file, self->data, self->data_bytes) && !fflush(file) && !fsync(fileno(file));
    good &= !fclose(file);
    if (good && !rename(partial, path)) return ZRT_OK;
    zrt_fail(ZRT_ERR_FILE, "%s: %s", path, strerror(errno));
    remove(partial);
    return ZRT_ERR_FILE;
}

static zrt_status parse_capsule(image *of, const char *path, const uint8_t *content, uint64_t size_bytes, capsule **result) {
    const capsule_header *header = (const capsule_header *)content;
    if (size_bytes < sizeof *header || memcmp(header->magic, "ZCAP", 4)) return zrt_fail(ZRT_ERR_FORMAT, "%s: not a capsule", path);
    if (header->version != CAPSULE_VERSION)
        return zrt_fail(ZRT_ERR_VERSION, "%s: capsule format %u, this library reads %d", path, header->version, CAPSULE_VERSION);
    uint64_t left = size_bytes - sizeof *header, before = counts_bytes(header->group_count);
    if (before > left || header->note_bytes > left - before || header->data_bytes != left - before - header->note_bytes)
        return zrt_fail(ZRT_ERR_FORMAT, "%s: incomplete", path);
    if (zrt_crc32(0, content + 12, size_bytes - 12) != header->crc32) return zrt_fail(ZRT_ERR_FORMAT, "%s: the checksum does not match", path);
    if (header->identity != of->identity || header->group_count != COUNT(of, GROUPS))
        return zrt_fail(ZRT_ERR_VERSION, "%s: taken from another model, ordering or layout of state", path);
    const uint8_t *counts = content + sizeof *header, *note = counts + before;
    if (count_data_bytes(of, (const uint32_t *)counts) != header->data_bytes) return zrt_fail(ZRT_ERR_FORMAT, "%s: its units have another size", path);
    capsule *self = new_capsule(of, header->note_bytes, header->data_bytes);
    if (!self) return ZRT_ERR_MEMORY;
    memcpy(self->counts, counts, 4ull * header->group_count);
    memcpy(self->note, note, header->note_bytes);
    memcpy(self->data, note + header->note_bytes, header->data_bytes);
    *result = self;
    return ZRT_OK;
}

zrt_status zrt_capsule_read(zrt_image image_handle, const char *path, zrt_capsule *handle) {
    image *of = zrt_find(image_handle, IMAGE);
    if (!of) return ZRT_ERR_HANDLE;
    if (!path || !handle) return zrt_fail(ZRT_ERR_ARGUMENT, "a capsule needs a path and a place for its handle");
    uint8_t *content;
    uint64_t size_bytes;
    zrt_status status = zrt_map_file(path, &content, &size_bytes);
    if (status) return status;
    capsule *self = 0;
    status = parse_capsule(of, path, content, size_bytes, &self);
    munmap(content, size_bytes);
    if (!status) *handle = self->base.handle;
    return status;
}

zrt_status zrt_capsule_units(zrt_capsule handle, const char *group, uint32_t *count) {
    capsule *self = zrt_find(handle, CAPSULE);
    image *of = self ? zrt_find(self->image, IMAGE) : 0;
    if (!of) return ZRT_ERR_HANDLE;
    zrt_status status = zrt_check_name(group, "the group's name");
    if (status) return status;
    if (!count) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the count of group %s", group);
    int64_t at = find_group(of, group);
    if (at < 0) return ZRT_ERR_NOT_FOUND;
    *count = self->counts[at];
    return ZRT_OK;
}

zrt_status zrt_capsule_note(zrt_capsule handle, void *note, uint64_t capacity_bytes, uint64_t *size_bytes) {
    capsule *self = zrt_find(handle, CAPSULE);
    if (!self) return ZRT_ERR_HANDLE;
    if (!size_bytes || (!note && capacity_bytes)) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the note or its size");
    *size_bytes = self->note_bytes;
    uint64_t copied = self->note_bytes < capacity_bytes ? self->note_bytes : capacity_bytes;
    if (copied) memcpy(note, self->note, copied);
    return ZRT_OK;
}

zrt_status zrt_capsule_destroy(zrt_capsule handle) {
    capsule *self = zrt_find(handle, CAPSULE);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_drop(&self->base);
    return ZRT_OK;
}
