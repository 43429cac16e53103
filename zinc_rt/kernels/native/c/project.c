// A projection's items: which rows, which tokens, where their inputs and outputs lie. An item is a panel of rows.
#include "projection.h"

static int32_t project(const projection *p, const uint32_t grid[3], uint32_t first, uint32_t last, void (*compute)(const job *)) {
    uint32_t tokens = counted(p->counts, p->count), inputs = counted(p->counts, p->inputs);
    job j = {.row_bytes = p->row_bytes, .k = p->k, .type = p->type};
    for (uint32_t item = first, next; item < last; item = next) {
        // A run of panels of one matrix.
        uint32_t number = item / grid[0], panel = item % grid[0];
        next = item + grid[0] - panel < last ? item + grid[0] - panel : last;
        uint32_t expert = number, begin = 0, end = tokens;
        if (p->routes) {
            if (number >= p->routes[0]) continue;
            route r = routes_of(p->routes, p->experts)[number];
            expert = r.expert, begin = r.begin, end = r.end;
        }
        const uint32_t *entries = p->routes ? (const uint32_t *)(routes_of(p->routes, p->experts) + p->experts) : 0;
        j.w = p->w + (size_t)expert * p->expert_bytes;
        j.bias = p->bias && p->routes ? p->bias + (size_t)expert * p->rows : p->bias;
        j.scale = p->scale ? p->scale + expert : 0;
        j.first = panel * PANEL;
        j.last = (panel + next - item) * PANEL < p->rows ? (panel + next - item) * PANEL : p->rows;
        for (uint32_t t = begin; t < end; t += j.n) {
            j.n = end - t < TILE ? end - t : TILE;
            for (uint32_t i = 0; i < j.n; i++) {
                if (p->routes) {
                    uint32_t entry = entries[t + i];
                    j.x[i] = p->x + (size_t)(entry / p->entries_to_an_input) * p->x_bytes;
                    j.y[i] = p->y + (size_t)entry * p->y_stride;
                    continue;
                }
                uint32_t input = p->row ? (uint32_t)p->row[t + i] : t + i;
                if (p->row && input >= inputs) return BAD_ROW;
                j.x[i] = p->x + (size_t)input * p->x_bytes + (size_t)number * p->x_head_bytes;
                j.y[i] = p->y + (size_t)(t + i) * p->y_stride + (size_t)number * p->y_head_stride;
            }
            compute(&j);
        }
    }
    return OK;
}

KERNEL(project_c1) { return project(arguments, grid, first, last, project_rows_c1); }
KERNEL(project_q8) { return project(arguments, grid, first, last, project_rows_q8); }
KERNEL(project_wmma_f16) { return project(arguments, grid, first, last, project_rows_wmma_f16); }
KERNEL(project_wmma_bf16) { return project(arguments, grid, first, last, project_rows_wmma_bf16); }
