// MLA_ABSORB's other part: some floats of each head, as they are.
#include "task.h"
#include "vec.h"

typedef struct {
    const float *x;
    float *y;
    uint32_t size, x_stride, y_stride;  // in floats; strides from one head to the next
} copy_arguments;

// Grid (heads, tokens): tokens follow each other as heads do.
KERNEL(copy_heads) {
    const copy_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++)
        memcpy(g->y + (size_t)item * g->y_stride, g->x + (size_t)item * g->x_stride, 4 * (size_t)g->size);
    return OK;
}
