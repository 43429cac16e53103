// Plans: replays on several streams, ordered by data dependencies. The rules are those of exec/plan.py.
#define _GNU_SOURCE
#include "objects.h"

#include <stdlib.h>

#define MOST_STEPS 4096

static void destroy_plan(object *base) {
    plan *self = (plan *)base;
    for (uint32_t i = 0; i < self->count; i++) free(self->steps[i].earlier);
    free(self->steps);
    free(self->order);
    free(self->values);
    free(self->streams);
}

zrt_status zrt_plan_create(zrt_context context_handle, zrt_plan *handle) {
    context *owner = zrt_find(context_handle, CONTEXT);
    if (!owner) return ZRT_ERR_HANDLE;
    if (!handle) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the plan's handle");
    plan *self = zrt_new(owner, PLAN, sizeof *self, destroy_plan);
    if (!self) return ZRT_ERR_MEMORY;
    *handle = self->base.handle;
    return ZRT_OK;
}

zrt_status zrt_plan_destroy(zrt_plan handle) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    zrt_drop(&self->base);
    return ZRT_OK;
}

zrt_status zrt_plan_add(zrt_plan handle, zrt_graph graph_handle, uint64_t key, zrt_stream stream_handle, uint32_t *number) {
    plan *self = zrt_find(handle, PLAN);
    graph *of = self ? zrt_find(graph_handle, GRAPH) : 0;
    stream *on = of ? zrt_find(stream_handle, STREAM) : 0;
    if (!on) return ZRT_ERR_HANDLE;
    if (!number) return zrt_fail(ZRT_ERR_ARGUMENT, "no place for the number of the step");
    if (self->count == MOST_STEPS) return zrt_fail(ZRT_ERR_MEMORY, "a plan has at most %d steps", MOST_STEPS);
    if (of->base.context != self->base.context || on->base.context != self->base.context)
        return zrt_fail(ZRT_ERR_HANDLE, "plan: graph %s or stream %s belongs to another context", of->name, on->name);
    step *steps = realloc(self->steps, (self->count + 1) * sizeof *steps);
    if (!steps) return zrt_no_memory();
    self->steps = steps;
    steps[self->count] = (step){.graph = graph_handle, .key = key, .stream = stream_handle};
    *number = self->count++;
    free(self->order);
    self->order = 0;
    return ZRT_OK;
}

// Whether `start` depends on `goal`, directly or not; a step does on itself.
static zrt_status reaches(const plan *self, uint32_t start, uint32_t goal, bool *answer) {
    uint8_t *seen = calloc(self->count, 1);
    uint32_t *todo = malloc(self->count * sizeof *todo), count = 0;
    if (!seen || !todo) {
        free(seen);
        free(todo);
        return zrt_no_memory();
    }
    *answer = false;
    seen[start] = 1;
    todo[count++] = start;
    while (count && !*answer) {
        uint32_t at = todo[--count];
        *answer = at == goal;
        for (uint32_t i = 0; i < self->steps[at].earlier_count; i++) {
            uint32_t next = self->steps[at].earlier[i];
            if (!seen[next]) seen[next] = 1, todo[count++] = next;
        }
    }
    free(seen);
    free(todo);
    return ZRT_OK;
}

zrt_status zrt_plan_after(zrt_plan handle, uint32_t number, uint32_t earlier) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (number >= self->count || earlier >= self->count)
        return zrt_fail(ZRT_ERR_RANGE, "no step %u in a plan of %u", number >= self->count ? number : earlier, self->count);
    step *step = &self->steps[number];
    for (uint32_t i = 0; i < step->earlier_count; i++)
        if (step->earlier[i] == earlier) return zrt_fail(ZRT_ERR_EXISTS, "step %u runs after step %u already", number, earlier);
    bool cycle = false;
    zrt_status status = reaches(self, earlier, number, &cycle);
    if (status) return status;
    if (cycle) return zrt_fail(ZRT_ERR_STATE, "step %u after step %u creates a cycle", number, earlier);
    uint32_t *list = realloc(step->earlier, (step->earlier_count + 1) * sizeof *list);
    if (!list) return zrt_no_memory();
    step->earlier = list;
    list[step->earlier_count++] = earlier;
    free(self->order);
    self->order = 0;
    return ZRT_OK;
}

// Dependencies first, then the order in which steps were added.
static zrt_status sort_steps(plan *self) {
    uint32_t *order = malloc(self->count * sizeof *order), count = 0;
    uint64_t *values = realloc(self->values, self->count * sizeof *values);
    if (values) self->values = values;
    zrt_stream *streams = realloc(self->streams, self->count * sizeof *streams);
    if (streams) self->streams = streams;
    uint8_t *placed = calloc(self->count, 1);
    if (!order || !values || !streams || !placed) {
        free(order);
        free(placed);
        return zrt_no_memory();
    }
    while (count < self->count)
        for (uint32_t i = 0; i < self->count; i++) {
            bool ready = !placed[i];
            for (uint32_t j = 0; ready && j < self->steps[i].earlier_count; j++) ready = placed[self->steps[i].earlier[j]];
            if (!ready) continue;
            placed[i] = 1;
            order[count++] = i;
            break;
        }
    free(placed);
    self->order = order;
    return ZRT_OK;
}

zrt_status zrt_plan_execute(zrt_plan handle) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (!self->count) return zrt_fail(ZRT_ERR_STATE, "the plan has no steps; add one first");
    zrt_status status = self->order ? ZRT_OK : sort_steps(self);
    for (uint32_t i = 0; i < self->count && !status; i++) {
        graph *of = zrt_find(self->steps[i].graph, GRAPH);
        stream *on = of ? zrt_find(self->steps[i].stream, STREAM) : 0;
        variant *entry;
        status = on ? zrt_check_replay(of, self->steps[i].key, on, &entry) : ZRT_ERR_HANDLE;
    }
    if (status) return status;
    self->executed = false;
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t number = self->order[i];
        const step *step = &self->steps[number];
        graph *of = zrt_find(step->graph, GRAPH);
        stream *on = zrt_find(step->stream, STREAM);
        for (uint32_t j = 0; j < step->earlier_count; j++) {
            stream *other = zrt_find(self->streams[step->earlier[j]], STREAM);
            zrt_add_wait(on, other->index, self->values[step->earlier[j]]);
        }
        if ((status = zrt_replay(of, zrt_find_variant(of, step->key), on))) return status;
        self->values[number] = on->base.context->times[on->index].submitted;
        self->streams[number] = step->stream;
    }
    self->executed = true;
    return ZRT_OK;
}

zrt_status zrt_plan_wait(zrt_plan handle, uint64_t timeout_ns) {
    plan *self = zrt_find(handle, PLAN);
    if (!self) return ZRT_ERR_HANDLE;
    if (!self->executed) return zrt_fail(ZRT_ERR_STATE, "the plan was not executed");
    uint64_t deadline = zrt_deadline_after(timeout_ns);
    zrt_status result = ZRT_OK;
    for (uint32_t i = 0; i < self->count; i++) {
        stream *on = zrt_find(self->streams[i], STREAM);
        if (!on) continue;  // destroyed, so it has finished
        uint64_t now = zrt_now_ns();
        zrt_status status = zrt_wait_for_value(on, self->values[i], now < deadline ? deadline - now : 0);
        if (status) return status;
        if (!result) result = zrt_result_of(on, self->values[i]);
    }
    return result;
}
