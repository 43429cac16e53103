// Sorts the (token, choice) entries of a step by expert, so that each expert's weights are read once.
#include "projection.h"

typedef struct {
    const int32_t *ids;  // [tokens][choices]
    uint32_t *routes;
    const int32_t *counts;
    uint32_t count, choices, experts;
} routing;

// One item: a counting sort. Entries of an expert keep their order.
KERNEL(route) {
    const routing *p = arguments;
    uint32_t n = counted(p->counts, p->count) * p->choices, experts = p->experts;
    uint32_t *counters = p->routes + 1;
    route *routes = (route *)(p->routes + 1 + experts);
    uint32_t *entries = (uint32_t *)(routes + experts);
    for (uint32_t e = 0; e < experts; e++) counters[e] = 0;
    for (uint32_t i = 0; i < n; i++) {
        if ((uint32_t)p->ids[i] >= experts) return BAD_EXPERT;
        counters[p->ids[i]]++;
    }
    uint32_t used = 0, begin = 0;
    for (uint32_t e = 0; e < experts; e++) {
        uint32_t size = counters[e];
        counters[e] = begin;
        if (size) routes[used++] = (route){e, begin, begin + size};
        begin += size;
    }
    for (uint32_t i = 0; i < n; i++) entries[counters[p->ids[i]]++] = i;
    p->routes[0] = used;
    return OK;
}
