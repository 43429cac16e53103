// SSM_SCAN: docs/canonical-1.md's row of it. rows/recurrent.py gives the argument block.
#include "activations.h"
#include "recurrent.h"

enum { CHANNELS = 16 };  // of an item

typedef struct {
    const float *u, *dt, *b, *c;
    const uint8_t *a;   // (channels, n)
    uint64_t a_stride;  // bytes; 0: packed
    const float *d;
    float *y;
    states states;
    uint32_t channels, n;
} scan_arguments;

// One channel's state meets a token: s = s * exp(dt * a) + (dt * u) * b. Gives dot(s, c).
INLINE float scan_step(const float *s, float *made, const float *a, const float *b, const float *c, float dt, float u, uint32_t n) {
    f32x16 acc[8] = {0};
    const f32x16 step = splat_exact(dt), input = splat_exact(dt * u);
    for (uint32_t i = 0, j = 0; i < n; i += 16, j = (j + 1) % 8) {
        uint32_t some = n - i < 16 ? n - i : 16;
        f32x16 state = load_some(s + i, some) * exp16(step * load_some(a + i, some)) + input * load_some(b + i, some);
        store_some(made + i, state, some);
        // loaded again: behind the row the zeros of b times an infinite input are NaN
        acc[j] = acc[j] + load_some(made + i, some) * load_some(c + i, some);
    }
    return tree128(acc);
}

// An item is CHANNELS channels of a sequence.
KERNEL(scan) {
    const scan_arguments *g = arguments;
    uint32_t n = g->n;
    uint64_t stride = g->a_stride ? g->a_stride : 4 * (uint64_t)n;
    for (uint32_t item = first; item < last; item++) {
        line l;
        int32_t why = line_of(&g->states, item / grid[0], &l);
        if (why) return why;
        uint32_t from = item % grid[0] * CHANNELS, count = g->channels - from < CHANNELS ? g->channels - from : CHANNELS;
        size_t at = (size_t)from * n, row = (size_t)g->channels * n;
        const float *old = l.of->old + l.old * row + at, *s = old;
        float *made = l.of->made + l.made * row + at;
        for (uint32_t t = l.first; t < l.end; t++, s = made) {
            size_t place = (size_t)t * g->channels + from;
            f32x16 dt = softplus16(load_some(g->dt + place, count));
            for (uint32_t i = 0; i < count; i++) {
                float u = g->u[place + i];
                const float *a = (const float *)(g->a + (from + i) * stride);
                float sum = scan_step(s + (size_t)i * n, made + (size_t)i * n, a, g->b + (size_t)t * n, g->c + (size_t)t * n, dt[i], u, n);
                g->y[place + i] = sum + g->d[from + i] * u;
            }
        }
        if (s == old && made != old) memcpy(made, old, 4 * (size_t)count * n);
    }
    return OK;
}
