// Print what llama.cpp computes for a reranker: `rank_scores MODEL.gguf < CASES`, one case a line. "ids 1 2 3" prints
// the scores of a prompt; "pair QUERY<tab>DOCUMENT" prints the token ids of the pair, then its scores.
// rank_goldens.json was made with it: g++ rank_scores.cpp -lllama -lggml -lggml-base
#include "llama.h"

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

using Ids = std::vector<llama_token>;

static Ids tokenize(const llama_vocab *vocab, const std::string &text, bool parse_special) {
    Ids ids(text.size() + 16);
    ids.resize(llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(), false, parse_special));
    return ids;
}

static void replace(std::string &text, const std::string &what, const std::string &by) {
    text.replace(text.find(what), what.size(), by);
}

static Ids make_pair_prompt(const llama_model *model, const std::string &query, const std::string &document) {
    const llama_vocab *vocab = llama_model_get_vocab(model);
    if (const char *found = llama_model_chat_template(model, "rerank")) {
        std::string text = found;
        replace(text, "{query}", query);
        replace(text, "{document}", document);
        return tokenize(vocab, text, true);
    }
    Ids ids, first = tokenize(vocab, query, false), second = tokenize(vocab, document, false);
    llama_token eos = llama_vocab_eos(vocab) == LLAMA_TOKEN_NULL ? llama_vocab_sep(vocab) : llama_vocab_eos(vocab);
    if (llama_vocab_get_add_bos(vocab)) ids.push_back(llama_vocab_bos(vocab));
    ids.insert(ids.end(), first.begin(), first.end());
    if (llama_vocab_get_add_eos(vocab)) ids.push_back(eos);
    if (llama_vocab_get_add_sep(vocab)) ids.push_back(llama_vocab_sep(vocab));
    ids.insert(ids.end(), second.begin(), second.end());
    if (llama_vocab_get_add_eos(vocab)) ids.push_back(eos);
    return ids;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    for (std::string line; std::getline(std::cin, line);) {
        Ids ids;
        if (line.rfind("ids ", 0) == 0) {
            std::istringstream numbers(line.substr(4));
            for (llama_token id; numbers >> id;) ids.push_back(id);
        } else {
            size_t tab = line.find('\t');
            ids = make_pair_prompt(model, line.substr(5, tab - 5), line.substr(tab + 1));
            for (llama_token id : ids) printf("%d ", id);
            printf("| ");
        }
        llama_context *context = llama_init_from_model(model, params);
        llama_batch batch = llama_batch_init(256, 0, 1);
        for (llama_token id : ids) {
            int n = batch.n_tokens++;
            batch.token[n] = id, batch.pos[n] = n, batch.n_seq_id[n] = 1, batch.seq_id[n][0] = 0, batch.logits[n] = 1;
        }
        if (llama_get_memory(context) ? llama_decode(context, batch) : llama_encode(context, batch)) return 1;
        const float *scores = llama_get_embeddings_seq(context, 0);
        for (uint32_t n = 0; n < llama_model_n_cls_out(model); n++) printf("%.9g ", scores[n]);
        printf("\n");
        llama_batch_free(batch);
        llama_free(context);
    }
}
