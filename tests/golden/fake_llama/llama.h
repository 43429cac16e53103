/* The part of llama.cpp's C interface that golden/llama_cpp_dump.c uses, over a model that is no model: layer N's
 * output is 100 N + 10 token + dim, the logits are 1000 token + id. Signatures as in llama.cpp's include/llama.h. */
#pragma once
#include "ggml.h"
#include <string.h>

typedef int32_t llama_token;
enum llama_flash_attn_type { LLAMA_FLASH_ATTN_TYPE_AUTO = -1, LLAMA_FLASH_ATTN_TYPE_DISABLED = 0 };
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor *tensor, bool ask, void *user_data);

enum { FAKE_VOCAB = 7, FAKE_WIDTH = 4, FAKE_LAYERS = 2 };
struct llama_vocab { int unused; };
struct llama_model { struct llama_vocab vocab; };
struct llama_model_params { int32_t n_gpu_layers; };
struct llama_context_params {
    uint32_t n_ctx, n_batch, n_ubatch;
    enum llama_flash_attn_type flash_attn_type;
    ggml_backend_sched_eval_callback cb_eval;
    void *cb_eval_user_data;
    enum ggml_type type_k, type_v;
};
struct llama_context { struct llama_context_params params; float *logits; };
struct llama_batch { int32_t n_tokens; llama_token *token; int32_t *pos; int32_t *n_seq_id; int32_t **seq_id; int8_t *logits; };

static inline void llama_backend_init(void) {}
static inline struct llama_model_params llama_model_default_params(void) { struct llama_model_params p = { 0 }; return p; }
static inline struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params)
{
    FILE *file = fopen(path, "rb");
    (void)params;
    if (!file)
        return 0;
    fclose(file);
    return calloc(1, sizeof(struct llama_model));
}
static inline void llama_model_free(struct llama_model *model) { free(model); }
static inline const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model) { return &model->vocab; }
static inline int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab) { (void)vocab; return FAKE_VOCAB; }
static inline int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t length, llama_token *tokens,
                                     int32_t room, bool add_special, bool parse_special)
{
    (void)vocab, (void)add_special, (void)parse_special;
    for (int32_t i = 0; i < length && i < room; i++)
        tokens[i] = text[i] % FAKE_VOCAB;
    return length;
}
static inline struct llama_context_params llama_context_default_params(void)
{
    struct llama_context_params p = { 512, 2048, 512, LLAMA_FLASH_ATTN_TYPE_AUTO, 0, 0, GGML_TYPE_F16, GGML_TYPE_F16 };
    return p;
}
static inline struct llama_context *llama_init_from_model(struct llama_model *model, struct llama_context_params params)
{
    struct llama_context *made = calloc(1, sizeof *made);
    (void)model;
    made->params = params;
    return params.type_k == GGML_TYPE_F32 && params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED ? made : 0;
}
static inline void llama_free(struct llama_context *context) { free(context->logits), free(context); }
static inline struct llama_batch llama_batch_init(int32_t n, int32_t embd, int32_t sequences)
{
    struct llama_batch b = { 0, calloc(n, 4), calloc(n, 4), calloc(n, 4), calloc(n, sizeof(int32_t *)), calloc(n, 1) };
    (void)embd;
    for (int32_t i = 0; i < n; i++)
        b.seq_id[i] = calloc(sequences, 4);
    return b;
}
static inline void llama_batch_free(struct llama_batch b) { free(b.token), free(b.pos), free(b.n_seq_id), free(b.logits); }
static inline float *llama_get_logits(struct llama_context *context) { return context->logits; }

/* A tensor whose rows lie apart, as views have them. */
static inline void fake_node(struct llama_context *context, const char *name, int layer, int32_t tokens, float scale)
{
    float rows[64][8] = { { 0 } };
    struct ggml_tensor t = { GGML_TYPE_F32, { FAKE_WIDTH, tokens, 1, 1 }, { 4, 32, 32ull * tokens, 32ull * tokens }, rows, "" };
    if (layer >= 0)
        snprintf(t.name, sizeof t.name, "%s-%d", name, layer);
    else
        snprintf(t.name, sizeof t.name, "%s", name);
    for (int32_t i = 0; i < tokens; i++)
        for (int d = 0; d < FAKE_WIDTH; d++)
            rows[i][d] = scale * (100.0f * layer + 10.0f * i + d);
    if (context->params.cb_eval(&t, true, 0))
        context->params.cb_eval(&t, false, 0);
}
static inline int32_t llama_decode(struct llama_context *context, struct llama_batch b)
{
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        fake_node(context, "attn_norm", layer, b.n_tokens, 0.5f);
        fake_node(context, "l_out", layer, b.n_tokens, -1.0f); /* a name that comes again */
        fake_node(context, "l_out", layer, b.n_tokens, 1.0f);
    }
    fake_node(context, "result_norm", -1, b.n_tokens, 1.0f);
    context->logits = calloc((size_t)b.n_tokens * FAKE_VOCAB, 4);
    for (int32_t i = 0; i < b.n_tokens; i++)
        for (int id = 0; id < FAKE_VOCAB; id++)
            context->logits[i * FAKE_VOCAB + id] = 1000.0f * b.token[i] + id;
    return 0;
}
