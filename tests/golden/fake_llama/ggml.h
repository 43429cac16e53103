/* Of ggml/include/ggml.h what golden/llama_cpp_dump.c uses. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define GGML_MAX_NAME 64
enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1, GGML_TYPE_I32 = 26 };
struct ggml_tensor { enum ggml_type type; int64_t ne[4]; size_t nb[4]; void *data; char name[GGML_MAX_NAME]; };

static inline int64_t ggml_nelements(const struct ggml_tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }
static inline size_t ggml_nbytes(const struct ggml_tensor *t)
{
    return 4 + (t->ne[0] - 1) * t->nb[0] + (t->ne[1] - 1) * t->nb[1];
}
