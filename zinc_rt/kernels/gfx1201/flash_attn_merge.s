// The chunks that a flash_attn_parts kernel left, merged: flash_attn_merge.inc. A wave is 32 dims of one head of a query.
//
// buffers: parts f32[T][heads][chunks][m, l, o[value_dim]]; position i32[T]; out f32[T][heads][value_dim]
// constants: heads; value_dim; chunks; window or 0. Grid: heads, tokens, steps of 32 dims
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn_merge.inc"
zrt_kernel name=flash_attn_merge, buffers=3, constants=4, threads=32, vgprs=MERGE_VGPRS, sgprs=MERGE_SGPRS
    s_load_b128 s[4:7], s[0:1], 0x0                 // parts, position
    s_load_b64 s[8:9], s[0:1], 0x10                 // out
    s_load_b128 s[12:15], s[0:1], 0x18              // heads, value_dim, chunks, window
    s_and_b32 s2, ttmp7, 0xffff                     // the token
    s_lshr_b32 s3, ttmp7, 16
    s_lshl_b32 s3, s3, 5
    s_lshl_b32 s20, s2, 2
    s_mov_b64 s[10:11], 0                           // no gate
    s_mov_b32 s90, 0
    s_mov_b32 s91, 0xff800000                       // no sink
    v_and_b32 v0, 31, v0
    s_wait_kmcnt 0x0
    s_load_b32 s21, s[6:7], s20 offset:0x0          // position: the last visible key
    s_mul_i32 s84, s2, s12
    s_add_co_u32 s84, s84, ttmp9                    // token * heads + head
    merge_place
    s_mov_b32 s44, 0
    s_wait_kmcnt 0x0
    merge_dims
    s_endpgm
zrt_end
