/*
 * What llama.cpp computes for a prompt, as an .npz that `zinc-rt golden import --from npz` takes: the logits of every
 * token, what each layer hands to the next, the chosen experts. For any build and backend of llama.cpp (CPU, ROCm,
 * Vulkan), through its public C interface.
 *
 *   cc -O1 llama_cpp_dump.c -I LLAMA/include -I LLAMA/ggml/include -L LLAMA/build/bin -Wl,-rpath,LLAMA/build/bin \
 *      -lllama -lggml -lggml-base -o zinc-llama-dump
 *   ./zinc-llama-dump -m M.gguf -t 1,2,3 -o dump.npz
 *   zinc-rt golden import --from npz dump.npz --model M.gguf --source "llama.cpp, ROCm" -o G.npz
 *
 * The KV cache is F32 and flash attention is off: with them only rounding is left to differ. llama.cpp before
 * August 2025 has no flash_attn_type: add -DOLD_FLASH_ATTN.
 *
 * Exit code: 0 written, 1 llama.cpp refused, 2 wrong usage.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

#define MAX_TOKENS 65536
#define MAX_ARRAYS 16384
#define MAX_KEPT 64

struct kept { char name[GGML_MAX_NAME]; bool is_float; int dims; uint64_t shape[4]; uint64_t bytes; unsigned char *data; };

static struct kept arrays[MAX_ARRAYS];
static int array_count;
static const char *wanted[MAX_KEPT] = { "l_out-", "result_norm", "ffn_moe_topk-" };
static int wanted_count = 3;

static void fail(int code, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    fprintf(stderr, "zinc-llama-dump: ");
    vfprintf(stderr, format, rest);
    fprintf(stderr, "\n");
    va_end(rest);
    exit(code);
}

static struct kept *add(const char *name, bool is_float, uint64_t bytes)
{
    struct kept *into = 0;
    for (int i = 0; i < array_count; i++)
        if (!strcmp(arrays[i].name, name))
            into = &arrays[i]; /* a name that comes again: the last value is the node's */
    if (!into) {
        if (array_count == MAX_ARRAYS)
            fail(1, "more than %d values match: keep fewer", MAX_ARRAYS);
        into = &arrays[array_count++];
        snprintf(into->name, sizeof into->name, "%s", name);
    }
    free(into->data);
    into->data = malloc(bytes ? bytes : 1);
    if (!into->data)
        fail(1, "no memory for %s, %llu bytes", name, (unsigned long long)bytes);
    into->is_float = is_float;
    into->bytes = bytes;
    return into;
}

/* The tensor's elements in order, whatever its strides are. */
static void keep(struct ggml_tensor *tensor)
{
    uint64_t count = (uint64_t)ggml_nelements(tensor), at = 0;
    struct kept *into = add(tensor->name, tensor->type == GGML_TYPE_F32, count * 4);
    unsigned char *raw = malloc(ggml_nbytes(tensor));
    if (!raw)
        fail(1, "no memory for %s", tensor->name);
    ggml_backend_tensor_get(tensor, raw, 0, ggml_nbytes(tensor));
    for (int64_t w = 0; w < tensor->ne[3]; w++)
        for (int64_t z = 0; z < tensor->ne[2]; z++)
            for (int64_t y = 0; y < tensor->ne[1]; y++)
                for (int64_t x = 0; x < tensor->ne[0]; x++, at += 4)
                    memcpy(into->data + at, raw + w * (int64_t)tensor->nb[3] + z * (int64_t)tensor->nb[2] +
                                                y * (int64_t)tensor->nb[1] + x * (int64_t)tensor->nb[0], 4);
    free(raw);
    into->dims = tensor->ne[3] > 1 ? 4 : tensor->ne[2] > 1 ? 3 : 2;
    for (int i = 0; i < into->dims; i++)
        into->shape[i] = (uint64_t)tensor->ne[into->dims - 1 - i];
}

static bool seen(struct ggml_tensor *tensor, bool ask, void *unused)
{
    bool match = false;
    (void)unused;
    for (int i = 0; i < wanted_count; i++)
        match = match || !strncmp(tensor->name, wanted[i], strlen(wanted[i]));
    if (!match || (tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_I32))
        return !ask;
    if (!ask)
        keep(tensor);
    return true;
}

/* An uncompressed zip file of .npy files: APPNOTE.TXT of PKWARE, and NumPy's format 1.0. */
static uint32_t crc_table[256];

static uint32_t crc_of(uint32_t crc, const unsigned char *data, uint64_t bytes)
{
    if (!crc_table[1])
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int bit = 0; bit < 8; bit++)
                c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
            crc_table[n] = c;
        }
    crc = ~crc;
    for (uint64_t i = 0; i < bytes; i++)
        crc = crc_table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static void number(FILE *file, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 0xff), file);
}

static void write_npz(const char *path)
{
    static uint32_t crcs[MAX_ARRAYS], offsets[MAX_ARRAYS], sizes[MAX_ARRAYS];
    FILE *file = fopen(path, "wb");
    if (!file)
        fail(1, "%s: cannot write: %s", path, strerror(errno));
    for (int i = 0; i < array_count; i++) {
        const struct kept *each = &arrays[i];
        char shape[128] = "", head[256];
        for (int d = 0; d < each->dims; d++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%llu,%s", (unsigned long long)each->shape[d],
                     d + 1 < each->dims ? " " : "");
        int text = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                            each->is_float ? "<f4" : "<i4", shape);
        int padded = (10 + text + 1 + 63) / 64 * 64;
        unsigned char front[512] = "\x93NUMPY\x01";
        front[8] = (unsigned char)((padded - 10) & 0xff);
        front[9] = (unsigned char)((padded - 10) >> 8);
        memset(front + 10, ' ', (size_t)padded - 11);
        memcpy(front + 10, head, (size_t)text);
        front[padded - 1] = '\n';
        if (each->bytes + (uint64_t)padded > 0xffffffffull || (uint64_t)ftell(file) > 0xf0000000ull)
            fail(1, "%s: more than 4 GB: use fewer tokens", path);
        crcs[i] = crc_of(crc_of(0, front, (uint64_t)padded), each->data, each->bytes);
        sizes[i] = (uint32_t)(each->bytes + (uint64_t)padded);
        offsets[i] = (uint32_t)ftell(file);
        number(file, 0x04034b50, 4), number(file, 20, 2), number(file, 0, 2), number(file, 0, 2), number(file, 0x00210000, 4);
        number(file, crcs[i], 4), number(file, sizes[i], 4), number(file, sizes[i], 4);
        number(file, strlen(each->name) + 4, 2), number(file, 0, 2);
        fprintf(file, "%s.npy", each->name);
        fwrite(front, 1, (size_t)padded, file);
        fwrite(each->data, 1, each->bytes, file);
    }
    uint32_t directory = (uint32_t)ftell(file);
    for (int i = 0; i < array_count; i++) {
        number(file, 0x02014b50, 4), number(file, 20, 2), number(file, 20, 2), number(file, 0, 2), number(file, 0, 2);
        number(file, 0x00210000, 4), number(file, crcs[i], 4), number(file, sizes[i], 4), number(file, sizes[i], 4);
        number(file, strlen(arrays[i].name) + 4, 2), number(file, 0, 2), number(file, 0, 2), number(file, 0, 2);
        number(file, 0, 2), number(file, 0, 4), number(file, offsets[i], 4);
        fprintf(file, "%s.npy", arrays[i].name);
    }
    uint32_t end = (uint32_t)ftell(file);
    number(file, 0x06054b50, 4), number(file, 0, 2), number(file, 0, 2), number(file, (uint64_t)array_count, 2);
    number(file, (uint64_t)array_count, 2), number(file, end - directory, 4), number(file, directory, 4), number(file, 0, 2);
    if (ferror(file) | fclose(file)) {
        remove(path);
        fail(1, "%s: cannot write: %s", path, strerror(errno));
    }
}

static void usage(void)
{
    fprintf(stderr, "usage: zinc-llama-dump -m M.gguf (-t 1,2,3 | -p TEXT) -o dump.npz [-ngl LAYERS] [-c CONTEXT] [-k NAME]...\n"
                    "  -ngl LAYERS   on the GPU (default all)\n"
                    "  -c CONTEXT    n_ctx (default 256, or the prompt)\n"
                    "  -k NAME       also keep values whose name begins so, for instance attn_norm-\n");
    exit(2);
}

int main(int count, char **arguments)
{
    static llama_token tokens[MAX_TOKENS];
    const char *model_path = 0, *list = 0, *prompt = 0, *out = 0;
    int layers = 9999, context = 0, token_count = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *flag = arguments[i], *value = arguments[i + 1];
        if (!strcmp(flag, "-m")) model_path = value;
        else if (!strcmp(flag, "-t")) list = value;
        else if (!strcmp(flag, "-p")) prompt = value;
        else if (!strcmp(flag, "-o")) out = value;
        else if (!strcmp(flag, "-ngl")) layers = atoi(value);
        else if (!strcmp(flag, "-c")) context = atoi(value);
        else if (!strcmp(flag, "-k") && wanted_count < MAX_KEPT) wanted[wanted_count++] = value;
        else usage();
    }
    if (count % 2 == 0 || !model_path || !out || !list == !prompt)
        usage();
    llama_backend_init();
    ggml_backend_load_all();
    struct llama_model_params of_model = llama_model_default_params();
    of_model.n_gpu_layers = layers;
    struct llama_model *model = llama_model_load_from_file(model_path, of_model);
    if (!model)
        fail(1, "%s: llama.cpp cannot load it", model_path);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int vocab_size = llama_vocab_n_tokens(vocab);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : 0) {
        if (token_count == MAX_TOKENS)
            fail(2, "-t: more than %d tokens", MAX_TOKENS);
        tokens[token_count++] = atoi(at);
    }
    if (prompt)
        token_count = llama_tokenize(vocab, prompt, (int32_t)strlen(prompt), tokens, MAX_TOKENS, true, true);
    for (int i = 0; i < token_count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab_size)
            fail(2, "token %d: ids run to %d", tokens[i], vocab_size - 1);
    if (token_count < 1)
        fail(2, "no tokens, or more than %d", MAX_TOKENS);
    struct llama_context_params of_context = llama_context_default_params();
    of_context.n_ctx = (uint32_t)(context > token_count ? context : token_count > 256 ? token_count : 256);
    of_context.n_batch = of_context.n_ubatch = of_context.n_ctx; /* one pass: a graph of several would be several values */
    of_context.type_k = of_context.type_v = GGML_TYPE_F32;
#ifdef OLD_FLASH_ATTN
    of_context.flash_attn = false;
#else
    of_context.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
#endif
    of_context.cb_eval = seen;
    struct llama_context *session = llama_init_from_model(model, of_context);
    if (!session)
        fail(1, "%s: llama.cpp made no context", model_path);
    struct llama_batch batch = llama_batch_init(token_count, 0, 1);
    batch.n_tokens = token_count;
    for (int i = 0; i < token_count; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(session, batch))
        fail(1, "llama.cpp could not decode the prompt");
    struct kept *ids = add("ids", false, (uint64_t)token_count * 4);
    ids->dims = 1;
    ids->shape[0] = (uint64_t)token_count;
    memcpy(ids->data, tokens, ids->bytes);
    struct kept *logits = add("logits", true, (uint64_t)token_count * (uint64_t)vocab_size * 4);
    logits->dims = 2;
    logits->shape[0] = (uint64_t)token_count;
    logits->shape[1] = (uint64_t)vocab_size;
    memcpy(logits->data, llama_get_logits(session), logits->bytes);
    write_npz(out);
    printf("%s: %d tokens, %d arrays\n", out, token_count, array_count);
    llama_batch_free(batch);
    llama_free(session);
    llama_model_free(model);
    return 0;
}
