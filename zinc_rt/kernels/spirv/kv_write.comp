#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// KV_WRITE_BATCHED: each token's k and v into their row of the paged cache, of kv.glsl's types.
// Grid: 2 (k, v), tokens, the longer row / 512 rounded up.
KERNARG(
    F32 k; F32RW kv_k; F32 v; F32RW kv_v; U32 position; U32 slot; U32 table;
    uint k_columns; uint v_columns; uint page_shift; uint pages;
)

#include "copy.glsl"
#include "row.glsl"
#include "paging.glsl"
#define KV_STORED COPY_COLUMNS
#include "kv.glsl"

#if KV != KV_F32
F32 columns_from;  // the workgroup's

float kv_element(uint i) { return columns_from.v[i]; }
#endif

void main() {
    bool keys = gl_WorkGroupID.x == 0u;
    uint token = gl_WorkGroupID.y, columns = keys ? args.k_columns : args.v_columns;
    uint row = cache_row(args.slot.v[token], args.position.v[token]);
    F32 from = row_of(F32, keys ? uint64_t(args.k) : uint64_t(args.v), token, columns);
#if KV == KV_F32
    F32RW to = row_of(F32RW, keys ? uint64_t(args.kv_k) : uint64_t(args.kv_v), row, columns);
    uint first = gl_WorkGroupID.z * COPY_COLUMNS;
    for (uint c = first + lane; c < min(first + COPY_COLUMNS, columns); c += LANES) to.v[c] = from.v[c];
#else
    uint first = gl_WorkGroupID.z * COPY_COLUMNS;
    if (first >= columns) return;
    columns_from = F32(uint64_t(from) + uint64_t(4u * first));
    uint64_t to = kv_row_of(uint64_t, keys ? uint64_t(args.kv_k) : uint64_t(args.kv_v), row, columns);
    kv_store(to + kv_bytes(first), min(COPY_COLUMNS, columns - first));
#endif
}
