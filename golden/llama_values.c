/*
 * Write values of a running llama.cpp program's graph. `validate/judge/layers.py` compiles this file and starts
 * llama-server with it in LD_PRELOAD. It needs no header of llama.cpp: of struct ggml_tensor it reads the fields before
 * `op` (ggml/include/ggml.h), and it calls ggml's functions by name.
 *
 * libllama sets its evaluation callback with ggml_backend_sched_set_eval_callback. This definition sets one that also
 * writes the tensors whose names match a pattern of the file `names` (fnmatch, one a line), in the folder
 * ZINC_LLAMA_VALUES. The values are appended to the file `values` there. Without the file `names` nothing is written.
 *
 *   cc -O2 -shared -fPIC llama_values.c -o llama_values.so -ldl
 *   ZINC_LLAMA_VALUES=/tmp/v LD_PRELOAD=$PWD/llama_values.so llama-server -m M.gguf
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_F32 0 /* enum ggml_type of ggml/include/ggml.h */
#define TYPE_I32 26

struct tensor {
    int type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
};

typedef bool (*eval_callback)(struct tensor *tensor, bool ask, void *data);

/* What stands before the bytes of a tensor in the file. */
struct record {
    char name[64], op[32];
    int32_t type, unused;
    int64_t ne[4];
    uint64_t nb[4], bytes;
};

static const char *(*get_name)(const struct tensor *), *(*get_op)(const struct tensor *);
static size_t (*get_bytes)(const struct tensor *);
static void (*get_data)(const struct tensor *, void *, size_t, size_t);
static eval_callback others; /* the program's own callback */
static void *others_data;

static bool matches(const char *folder, const char *name)
{
    char path[4096], pattern[128];
    snprintf(path, sizeof path, "%s/names", folder);
    FILE *file = fopen(path, "r");
    bool match = false;
    while (file && !match && fgets(pattern, sizeof pattern, file)) {
        pattern[strcspn(pattern, "\n")] = 0;
        match = *pattern && !fnmatch(pattern, name, 0);
    }
    if (file)
        fclose(file);
    return match;
}

static void append(const char *folder, const struct tensor *tensor)
{
    char path[4096];
    struct record head = { .type = tensor->type, .bytes = get_bytes(tensor) };
    snprintf(head.name, sizeof head.name, "%s", get_name(tensor));
    snprintf(head.op, sizeof head.op, "%s", get_op(tensor));
    for (int i = 0; i < 4; i++)
        head.ne[i] = tensor->ne[i], head.nb[i] = tensor->nb[i];
    unsigned char *data = malloc(head.bytes + 1);
    snprintf(path, sizeof path, "%s/values", folder);
    FILE *file = data ? fopen(path, "ab") : 0;
    if (file) {
        get_data(tensor, data, 0, head.bytes);
        fwrite(&head, sizeof head, 1, file);
        fwrite(data, 1, head.bytes, file);
        fclose(file); /* an incomplete record is recognised by its size */
    }
    free(data);
}

static bool seen(struct tensor *tensor, bool ask, void *unused)
{
    const char *folder = getenv("ZINC_LLAMA_VALUES");
    bool usable = folder && (tensor->type == TYPE_F32 || tensor->type == TYPE_I32);
    bool match = usable && matches(folder, get_name(tensor));
    bool other = others && others(tensor, ask, others_data);
    (void)unused;
    if (ask)
        return match || other;
    if (match)
        append(folder, tensor);
    return others ? other : true;
}

void ggml_backend_sched_set_eval_callback(void *sched, eval_callback callback, void *data)
{
    void (*set)(void *, eval_callback, void *);
    *(void **)&set = dlsym(RTLD_NEXT, "ggml_backend_sched_set_eval_callback");
    *(void **)&get_name = dlsym(RTLD_DEFAULT, "ggml_get_name");
    *(void **)&get_op = dlsym(RTLD_DEFAULT, "ggml_op_desc");
    *(void **)&get_bytes = dlsym(RTLD_DEFAULT, "ggml_nbytes");
    *(void **)&get_data = dlsym(RTLD_DEFAULT, "ggml_backend_tensor_get");
    others = callback, others_data = data;
    set(sched, get_name && get_op && get_bytes && get_data ? seen : callback, data);
}
