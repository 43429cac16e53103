#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"

// MLA_FLASH_ATTN before v_b: keys [latent | pe], one head of them for all of q's, and values the latents, up to WIDEST
// of them. q f32 [tokens][heads][latent + rope], y f32 [tokens][heads][latent]. Grid: heads, tokens.
KERNARG(
    F32 q; F32 kv_latent; F32 kv_pe; U32 position; U32 slot; U32 table; F32RW y;
    uint heads; uint latent; uint rope; float scale; uint page_shift; uint pages;
)

#include "row.glsl"
#include "paging.glsl"
#include "attention.glsl"

uint64_t key_latent, key_pe;  // of the invocation

uint64_t find_key(uint row) {
    key_latent = kv_row_of(uint64_t, args.kv_latent, row, args.latent);
    key_pe = kv_row_of(uint64_t, args.kv_pe, row, args.rope);
    return key_latent;
}

#if KV == KV_F32
uint64_t key_dim(uint dim) {
    return dim < args.latent ? key_latent + 4u * dim : key_pe + 4u * (dim - args.latent);
}
#else
float key_at(uint dim) { return dim < args.latent ? kv_at(key_latent, dim) : kv_at(key_pe, dim - args.latent); }
vec4 key_four(uint dim) { return dim < args.latent ? kv_four(key_latent, dim) : kv_four(key_pe, dim - args.latent); }
#endif

void main() {
    uint token = gl_WorkGroupID.y, head = token * args.heads + gl_WorkGroupID.x, width = args.latent + args.rope;
    in_fours = ((args.latent | args.rope) & 3u) == 0u;
    query = row_of(uint64_t, args.q, head, width);
    F32RW y = row_of(F32RW, args.y, head, args.latent);
    attend(args.slot.v[token], 0, int(args.position.v[token]), width, args.latent, args.scale, 0.0, false, 0.0, y);
}
