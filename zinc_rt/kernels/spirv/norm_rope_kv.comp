#version 460
#extension GL_GOOGLE_include_directive : require
#define SUM_ROWS 1
#include "kernel.glsl"
#include "norm.glsl"

// RMS_NORM_FUSED_ROPE_KV_WRITE: a workgroup takes a head of q or k, or 512 columns of v, f32; caches have kv.glsl's
// types.
// q and k: norm over the head where a weight is given, then ROPE of its first 2 * pairs dims; q goes to y, k and v
// to their cache row. next and second: bytes from a pair to the next one, and from its first dim to its second.
// Grid: heads of q, heads of k and columns of v / 512 rounded up, all in x; tokens.
KERNARG(
    F32 q; F32 k; F32 v; F32 q_weight; F32 k_weight; F32 cos; F32 sin; U32 position; U32 slot; U32 table;
    F32RW kv_k; F32RW kv_v; F32RW y;
    uint head_dim; float eps; uint pairs; uint next; uint second; uint q_heads; uint k_heads; uint v_columns;
    uint page_shift; uint pages;
)

#include "copy.glsl"
#include "row.glsl"
#include "paging.glsl"
#include "rope.glsl"
#define KV_STORED 2048  // kernels/rows/caches.py: WIDEST_HEAD
#include "kv.glsl"

F32 head, weight;  // of the workgroup

#if KV == KV_F32
#define put(y, dim, x) y.v[dim] = x
#else
shared float turned_head[KV_STORED];  // where it goes to a cache
bool cached = false;
F32 columns_from;  // of v, where `cached` is not set

float kv_element(uint i) { return cached ? turned_head[i] : columns_from.v[i]; }

void put(F32RW y, uint dim, float x) {
    if (cached) turned_head[dim] = x;
    else y.v[dim] = x;
}
#endif

float normed_element(uint dim) { return head.v[dim]; }

float scaled(uint dim, bool weighted, float reciprocal) {
    return weighted ? (head.v[dim] * reciprocal) * weight.v[dim] : head.v[dim];
}

void norm_and_rope(F32RW y) {
    bool weighted = present(weight);
    float reciprocal = 0.0;
    if (weighted) reciprocal = norm_reciprocal(args.head_dim, args.eps);
    uint angles = args.position.v[gl_WorkGroupID.y] * args.pairs;
    for (uint pair = lane; pair < args.pairs; pair += LANES) {
        uint first = pair * (args.next >> 2), second = first + (args.second >> 2);
        float x0 = scaled(first, weighted, reciprocal), x1 = scaled(second, weighted, reciprocal);
        vec2 turned_pair = turned(x0, x1, angles + pair);
        put(y, first, turned_pair.x);
        put(y, second, turned_pair.y);
    }
    for (uint dim = 2u * args.pairs + lane; dim < args.head_dim; dim += LANES) {
        put(y, dim, scaled(dim, weighted, reciprocal));
    }
}

void main() {
    uint token = gl_WorkGroupID.y, part = gl_WorkGroupID.x;
    uint row = cache_row(args.slot.v[token], args.position.v[token]);
    if (part < args.q_heads) {
        uint at = token * args.q_heads + part;
        head = row_of(F32, args.q, at, args.head_dim);
        weight = F32(uint64_t(args.q_weight));
        norm_and_rope(row_of(F32RW, args.y, at, args.head_dim));
        return;
    }
    part -= args.q_heads;
    if (part < args.k_heads) {
        head = row_of(F32, args.k, token * args.k_heads + part, args.head_dim);
        weight = F32(uint64_t(args.k_weight));
        uint64_t keys = kv_row_of(uint64_t, args.kv_k, row, args.k_heads * args.head_dim);
#if KV == KV_F32
        norm_and_rope(row_of(F32RW, keys, part, args.head_dim));
#else
        cached = true;
        norm_and_rope(F32RW(0ul));
        barrier();
        kv_store(kv_row_of(uint64_t, keys, part, args.head_dim), args.head_dim);
#endif
        return;
    }
    uint first = (part - args.k_heads) * COPY_COLUMNS;
    F32 from = row_of(F32, args.v, token, args.v_columns);
#if KV == KV_F32
    F32RW to = row_of(F32RW, args.kv_v, row, args.v_columns);
    for (uint c = first + lane; c < min(first + COPY_COLUMNS, args.v_columns); c += LANES) to.v[c] = from.v[c];
#else
    columns_from = F32(uint64_t(from) + uint64_t(4u * first));
    uint64_t to = kv_row_of(uint64_t, args.kv_v, row, args.v_columns) + kv_bytes(first);
    kv_store(to, min(COPY_COLUMNS, args.v_columns - first));
#endif
}
