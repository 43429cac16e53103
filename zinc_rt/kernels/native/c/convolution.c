// SSM_CONV1D in its three forms: docs/canonical-1.md's row of it. rows/recurrent.py gives the argument block.
#include "activations.h"
#include "recurrent.h"

enum { CHANNELS = 256, TAPS = 32 };  // of an item; the most

typedef struct {
    const float *x;
    const uint8_t *weight;   // (channels, taps)
    uint64_t weight_stride;  // bytes; 0: packed
    const float *bias;       // or none
    float *y;
    states states;
    uint32_t channels, taps, silu;
} conv_arguments;

// Tap j of n channels' rows of weights.
INLINE void load_taps(const conv_arguments *g, uint32_t channel, uint32_t n, f32x16 taps[TAPS]) {
    uint64_t stride = g->weight_stride ? g->weight_stride : 4 * (uint64_t)g->taps;
    float lanes[TAPS][16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        const float *row = (const float *)(g->weight + (channel + i) * stride);
        for (uint32_t j = 0; j < g->taps; j++) lanes[j][i] = row[j];
    }
    for (uint32_t j = 0; j < g->taps; j++) taps[j] = load16(lanes[j]);
}

// n neighbouring channels of a line: its last taps - 1 inputs are the state.
INLINE void convolve(const conv_arguments *g, const line *l, uint32_t channel, uint32_t n) {
    uint32_t kept = g->taps - 1;
    size_t row = (size_t)kept * g->channels;
    const float *old = l->of->old + l->old * row + channel;
    float *made = l->of->made + l->made * row + channel;
    f32x16 taps[TAPS], window[TAPS], bias = {0};
    load_taps(g, channel, n, taps);
    if (g->bias) bias = load_some(g->bias + channel, n);
    for (uint32_t j = 0; j < kept; j++) window[j] = load_some(old + (size_t)j * g->channels, n);
    for (uint32_t t = l->first; t < l->end; t++) {
        window[kept] = load_some(g->x + (size_t)t * g->channels + channel, n);
        f32x16 sum = {0};
        for (uint32_t j = 0; j < g->taps; j++) sum = sum + window[j] * taps[j];
        if (g->bias) sum = sum + bias;
        store_some(g->y + (size_t)t * g->channels + channel, g->silu ? silu16(sum) : sum, n);
        for (uint32_t j = 0; j < kept; j++) window[j] = window[j + 1];
    }
    for (uint32_t j = 0; j < kept; j++) store_some(made + (size_t)j * g->channels, window[j], n);
}

// An item is CHANNELS channels of a sequence.
KERNEL(conv1d) {
    const conv_arguments *g = arguments;
    for (uint32_t item = first; item < last; item++) {
        line l;
        int32_t why = line_of(&g->states, item / grid[0], &l);
        if (why) return why;
        uint32_t from = item % grid[0] * CHANNELS, to = from + CHANNELS < g->channels ? from + CHANNELS : g->channels;
        for (uint32_t c = from; c < to; c += 16) convolve(g, &l, c, to - c < 16 ? to - c : 16);
    }
    return OK;
}
