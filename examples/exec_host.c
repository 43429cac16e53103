// A host in C: open an image, compute a prompt, decode greedily. No Python runs.
//
//     zinc-rt image --model M.gguf -o host
//     cc -O2 -I host examples/exec_host.c -o exec_host -L host -lzinc_rt_exec -Wl,-rpath,host
//     ./exec_host host 8 1 2 3                     print 8 tokens that follow 1 2 3
//     ./exec_host host 8 1 2 3 --save half.zcap    the same, and keep the state after the prompt in a file
//     ./exec_host host 8 --load half.zcap          continue from that file: the same tokens
//     ./exec_host host 1000 1 2 3 --bench          the median time of a step
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec.h"

#define SECOND 1000000000ull
#define MOST_PAGES 8192  // of one sequence

static void check(zrt_status status) {
    if (!status) return;
    fprintf(stderr, "exec_host: %s: %s\n", zrt_status_text(status), zrt_last_error());
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

// The inputs and outputs of the program that computes one token of one sequence.
typedef struct {
    zrt_graph graph;
    zrt_stream stream;
    zrt_port counts, token, position, slot, row, source, target, next, logits;
    int has_state;
} decoder;

static zrt_port port_of(const decoder *self, const char *name) {
    zrt_port port;
    check(zrt_graph_port(self->graph, ZRT_KEY(1, 1, 1), name, &port));
    return port;
}

static void write_i32(zrt_port port, int32_t value) { check(zrt_buffer_write(port.buffer, port.offset_bytes, &value, 4)); }

static decoder open_decoder(zrt_image image, zrt_stream stream) {
    decoder self = {.stream = stream};
    check(zrt_image_graph(image, "decode", &self.graph));
    self.counts = port_of(&self, "step.counts");
    self.token = port_of(&self, "request[slot].token_id");
    self.position = port_of(&self, "request[slot].position");
    self.slot = port_of(&self, "request[slot].slot");
    self.row = port_of(&self, "request[slot].logit_row");
    self.next = port_of(&self, "request[slot].next_token");
    self.logits = port_of(&self, "request[slot].logits");
    self.has_state = !zrt_graph_port(self.graph, ZRT_KEY(1, 1, 1), "request[slot].state_source", &self.source);
    if (self.has_state) self.target = port_of(&self, "request[slot].state_target");
    int32_t counts[8] = {1, 1, 1};  // tokens, sequences, rows of logits; no changes of the page table
    check(zrt_buffer_write(self.counts.buffer, self.counts.offset_bytes, counts, sizeof counts));
    write_i32(self.slot, 0);
    write_i32(self.row, 0);
    return self;
}

static int64_t property_of(zrt_image image, const char *name) {
    int64_t value;
    check(zrt_image_property(image, name, &value));
    return value;
}

// How many units of a group one sequence has; 0 where the model has no such group.
static int64_t units_of(zrt_image image, const char *group) {
    char name[64];
    int64_t count;
    snprintf(name, sizeof name, "%s.units", group);
    return zrt_image_property(image, name, &count) ? 0 : count / property_of(image, "slots");
}

// The sequence in slot 0 has pages 0, 1, 2, ... of every pool, again from 0 where a window needs no more, and row 1
// of the recurrent state; row 0 is zero.
static void bind_pages(zrt_image image, const decoder *self) {
    static const char *const TABLES[][2] = {{"state.page_table", "pages_0"}, {"state.page_table_1", "pages_1"}};
    int64_t page_tokens = property_of(image, "page_tokens"), pages = (property_of(image, "ctx") + page_tokens - 1) / page_tokens;
    for (int group = 0; group < 2; group++) {
        int64_t units = units_of(image, TABLES[group][1]);
        for (int64_t page = 0; units && page < pages; page++) {
            zrt_port table = port_of(self, TABLES[group][0]);
            table.offset_bytes += 4 * (uint64_t)page;
            write_i32(table, (int32_t)(page % units));
        }
    }
}

static int32_t step(const decoder *self, int32_t token, int32_t position) {
    write_i32(self->token, token);
    write_i32(self->position, position);
    if (self->has_state) {
        write_i32(self->source, position ? 1 : 0);
        write_i32(self->target, 1);
    }
    check(zrt_graph_replay(self->graph, ZRT_KEY(1, 1, 1), self->stream));
    check(zrt_stream_synchronize(self->stream, 60 * SECOND));
    int32_t next;
    check(zrt_buffer_read(self->next.buffer, self->next.offset_bytes, &next, 4));
    return next;
}

// The state of the sequence after `tokens` tokens: the pages that have some, and its row.
static uint32_t choose_units(zrt_image image, int32_t tokens, zrt_units units[3], uint32_t *pages) {
    static const uint32_t row[1] = {1};
    static const char *const GROUPS[] = {"pages_0", "pages_1", "state_rows"};
    int64_t page_tokens = property_of(image, "page_tokens"), used = (tokens + page_tokens - 1) / page_tokens;
    uint32_t groups = 0;
    for (int i = 0; i < 3; i++) {
        int64_t most = units_of(image, GROUPS[i]);
        if (most && i == 2) units[groups++] = (zrt_units){GROUPS[i], row, 1, 0};
        else if (most) units[groups++] = (zrt_units){GROUPS[i], pages, (uint32_t)(used < most ? used : most), 0};
        if (most && i < 2 && units[groups - 1].count > MOST_PAGES) {
            fprintf(stderr, "exec_host: a capsule of more than %d pages\n", MOST_PAGES);
            exit(1);
        }
    }
    return groups;
}

static int compare(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

int main(int argc, char **argv) {
    int32_t prompt[4096], tokens = 0, count = argc > 2 ? atoi(argv[2]) : 0, bench = 0;
    const char *save = 0, *load = 0, *logits = 0;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--save") && i + 1 < argc) save = argv[++i];
        else if (!strcmp(argv[i], "--load") && i + 1 < argc) load = argv[++i];
        else if (!strcmp(argv[i], "--logits") && i + 1 < argc) logits = argv[++i];
        else if (!strcmp(argv[i], "--bench")) bench = 1;
        else if (tokens < 4096) prompt[tokens++] = atoi(argv[i]);
    }
    if (count < 1 || (!tokens && !load)) {
        fprintf(stderr, "usage: exec_host FOLDER COUNT TOKEN... [--save F] [--load F] [--logits F] [--bench]\n");
        return 2;
    }
    char path[4096], kernels[4096];
    snprintf(path, sizeof path, "%s/model.zrx", argv[1]);
    snprintf(kernels, sizeof kernels, "%s/libzinc_rt_kernels.so", argv[1]);
    zrt_context context;
    zrt_image image;
    zrt_stream stream;
    check(zrt_context_create(&(zrt_context_options){.size_bytes = sizeof(zrt_context_options), .kernels = kernels}, &context));
    check(zrt_image_open(context, path, 0, &image));
    check(zrt_stream_create(context, "main", 0, &stream));
    decoder decoder = open_decoder(image, stream);
    bind_pages(image, &decoder);
    int64_t ctx = property_of(image, "ctx");

    // The note of a capsule: the position and the next token.
    int32_t at[2] = {0, 0};
    uint32_t pages[MOST_PAGES];
    zrt_units units[3];
    zrt_capsule capsule;
    for (uint32_t i = 0; i < MOST_PAGES; i++) pages[i] = i;
    if (load) {
        uint64_t size;
        check(zrt_capsule_read(image, load, &capsule));
        check(zrt_capsule_note(capsule, at, sizeof at, &size));
        check(zrt_capsule_restore(capsule, units, choose_units(image, at[0], units, pages)));
    }
    for (int32_t i = 0; i < tokens; i++) at[1] = step(&decoder, prompt[i], at[0]++);
    if (save) {
        check(zrt_capsule_take(image, units, choose_units(image, at[0], units, pages), at, sizeof at, &capsule));
        check(zrt_capsule_write(capsule, save));
    }

    uint64_t *times = malloc((size_t)count * sizeof *times);
    for (int32_t i = 0; i < count; i++) {
        if (!bench) printf("%d%c", at[1], i + 1 < count ? ' ' : '\n');
        uint64_t start = now_ns();
        if (at[0] >= ctx) at[0] = tokens;  // --bench may take more steps than the context has room for
        if (i + 1 < count || bench) at[1] = step(&decoder, at[1], at[0]++);
        times[i] = now_ns() - start;
    }
    if (bench) {
        qsort(times, (size_t)count, sizeof *times, compare);
        printf("%.1f us a step, median of %d (%.1f to %.1f)\n", (double)times[count / 2] / 1e3, count,
               (double)times[count / 10] / 1e3, (double)times[count - 1 - count / 10] / 1e3);
    }
    if (logits) {
        void *values;
        FILE *file = fopen(logits, "wb");
        check(zrt_buffer_map(decoder.logits.buffer, decoder.logits.offset_bytes, decoder.logits.size_bytes, &values));
        if (!file || fwrite(values, 1, decoder.logits.size_bytes, file) != decoder.logits.size_bytes || fclose(file)) return 1;
    }
    free(times);
    check(zrt_context_destroy(context));
    return 0;
}
