/* Of ggml/include/ggml-backend.h what golden/llama_cpp_dump.c uses. */
#pragma once
#include "ggml.h"
#include <string.h>

static inline void ggml_backend_load_all(void) {}
static inline void ggml_backend_tensor_get(const struct ggml_tensor *t, void *to, size_t offset, size_t bytes)
{
    memcpy(to, (const char *)t->data + offset, bytes);
}
