#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"

// FLASH_ATTN, FLASH_ATTN_BATCHED for head_dim and value_dim up to WIDEST. group: query heads of a kv head; window: 0
// is none; cap: bound of the scores, 0 is none; sinks f32 [heads] or 0. Grid: query heads of a kv head, tokens, kv heads.
KERNARG(
    F32 q; F32 kv_k; F32 kv_v; U32 position; U32 slot; U32 table; F32RW y; F32 sinks;
    uint group; uint kv_heads; uint head_dim; uint value_dim; float scale; uint window; uint page_shift; uint pages; float cap;
)

#include "row.glsl"
#include "paging.glsl"
#include "attention.glsl"

uint64_t key;  // of the invocation

uint64_t find_key(uint row) {
    uint64_t at = uint64_t(row) * args.kv_heads + gl_WorkGroupID.z;
    key = uint64_t(args.kv_k) + at * kv_bytes(args.head_dim);
    return uint64_t(args.kv_v) + at * kv_bytes(args.value_dim);
}

#if KV == KV_F32
uint64_t key_dim(uint dim) { return key + 4u * dim; }
#else
float key_at(uint dim) { return kv_at(key, dim); }
vec4 key_four(uint dim) { return kv_four(key, dim); }
#endif

void main() {
    uint token = gl_WorkGroupID.y;
    uint head = (token * args.kv_heads + gl_WorkGroupID.z) * args.group + gl_WorkGroupID.x;
    in_fours = (args.head_dim & 3u) == 0u;
    query = row_of(uint64_t, args.q, head, args.head_dim);
    int last = int(args.position.v[token]);
    int first = args.window == 0u ? 0 : max(0, last - int(args.window) + 1);
    F32RW y = row_of(F32RW, args.y, head, args.value_dim);
    bool has_sink = present(args.sinks);
    float sink = has_sink ? args.sinks.v[gl_WorkGroupID.z * args.group + gl_WorkGroupID.x] : 0.0;
    attend(args.slot.v[token], first, last, args.head_dim, args.value_dim, args.scale, args.cap, has_sink, sink, y);
}
