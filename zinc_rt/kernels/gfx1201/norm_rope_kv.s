// RMS_NORM_FUSED_ROPE_KV_WRITE: a wave takes a head of q or k, or 512 columns of v, f32.
// q and k: norm over the head where a weight is given, then ROPE; q goes to q_out, k and v to their cache row.
// Buffers: q, k, v, q_norm or 0, k_norm or 0, cos, sin, position, slot, page_table, kv_k, kv_v, q_out.
// Constants: head_dim, eps, R, bytes from pair to pair, bytes from the first of a pair to the second, heads of q,
// heads of k, columns of v, log2 of a page's tokens, pages of a slot, other columns behind each head of q.
// Grid: heads of q, heads of k and columns of v / 512 rounded up, all in x; tokens.
.set NORM_RESIDUAL, 0
.include "zrt.inc"
.include "copy.inc"
.include "arith.inc"
.include "norm.inc"

zrt_kernel name=norm_rope_kv, buffers=13, constants=11, threads=32, vgprs=NORM_VGPRS, sgprs=72
    s_clause 5
    s_load_b512 s[20:35], s[0:1], 0
    s_load_b256 s[36:43], s[0:1], 64
    s_load_b64 s[44:45], s[0:1], 96
    s_load_b256 s[48:55], s[0:1], 104
    s_load_b64 s[56:57], s[0:1], 136
    s_load_b32 s68, s[0:1], 144
    s_and_b32 s2, ttmp7, 0xffff                     // token
    s_lshl_b32 s3, s2, 2
    s_mov_b32 s63, 0
    s_wait_kmcnt 0
    s_load_b32 s58, s[34:35], s3                    // position
    s_load_b32 s59, s[36:37], s3                    // slot
    s_sub_co_i32 s60, ttmp9, s53                    // head of k, negative: of q
    s_wait_kmcnt 0
    s_mul_hi_u32 s65, s58, s50                      // row of cos and sin
    s_mul_i32 s64, s58, s50
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[30:31], s[30:31], s[64:65]
    s_add_nc_u64 s[32:33], s[32:33], s[64:65]
    s_cmp_ge_i32 s60, 0
    s_cbranch_scc1 .Lcached
    s_mul_i32 s62, s2, s53
    s_add_co_u32 s62, s62, ttmp9
    s_add_co_u32 s68, s68, s48
    s_mul_hi_u32 s65, s62, s68
    s_mul_i32 s64, s62, s68
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[4:5], s[20:21], s[64:65]
    s_mul_hi_u32 s65, s62, s48
    s_mul_i32 s64, s62, s48
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[6:7], s[44:45], s[64:65]
    s_mov_b64 s[8:9], s[26:27]
    s_branch .Lhead
.Lcached:
    s_mul_i32 s62, s59, s57
    s_lshr_b32 s64, s58, s56
    s_add_co_u32 s62, s62, s64
    s_lshl_b64 s[62:63], s[62:63], 2
    s_add_nc_u64 s[38:39], s[38:39], s[62:63]
    s_load_b32 s61, s[38:39], 0
    s_bfm_b32 s64, s56, 0
    s_and_b32 s64, s58, s64
    s_wait_kmcnt 0
    s_lshl_b32 s61, s61, s56
    s_add_co_u32 s61, s61, s64                      // row of the cache
    s_sub_co_i32 s59, s60, s54                      // 512 columns of v, negative: a head of k
    s_cmp_ge_i32 s59, 0
    s_cbranch_scc1 .Lvalue
    s_mul_i32 s62, s2, s54
    s_add_co_u32 s62, s62, s60
    s_mul_hi_u32 s65, s62, s48
    s_mul_i32 s64, s62, s48
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[4:5], s[22:23], s[64:65]
    s_mul_i32 s62, s61, s54
    s_add_co_u32 s62, s62, s60
    s_mul_hi_u32 s65, s62, s48
    s_mul_i32 s64, s62, s48
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[6:7], s[40:41], s[64:65]
    s_mov_b64 s[8:9], s[28:29]

.Lhead:                                             // s[4:5] -> s[6:7], weight s[8:9]
    s_mov_b64 s[12:13], s[48:49]
    v_mov_b32 v3, 1.0
    v_mov_b32 v16, 1.0
    v_mov_b32 v17, 1.0
    s_cmp_eq_u64 s[8:9], 0
    s_cselect_b32 s46, 1, 0
    s_cbranch_scc1 .Lnormed
    norm_reciprocal
.Lnormed:
    s_lshl_b32 s47, s50, 1                          // dims that turn
    v_mov_b32 v1, v0
.Lpairs:
    v_cmp_gt_u32 vcc_lo, s50, v1
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lothers
    v_lshlrev_b32 v2, 2, v1
    v_mul_lo_u32 v4, v1, s51                        // first of the pair
    v_add_nc_u32 v5, s52, v4                        // second
    s_clause 3
    global_load_b32 v6, v4, s[4:5]
    global_load_b32 v7, v5, s[4:5]
    global_load_b32 v8, v2, s[30:31]
    global_load_b32 v9, v2, s[32:33]
    v_add_nc_u32 v1, 32, v1
    s_cmp_lg_u32 s46, 0
    s_cbranch_scc1 .Lturn
    s_clause 1
    global_load_b32 v16, v4, s[8:9]
    global_load_b32 v17, v5, s[8:9]
.Lturn:
    s_wait_loadcnt 0
    v_mul_f32 v6, v6, v3
    v_mul_f32 v7, v7, v3
    v_dual_mul_f32 v6, v6, v16 :: v_dual_mul_f32 v7, v7, v17
    v_dual_mul_f32 v10, v6, v8 :: v_dual_mul_f32 v11, v7, v9
    v_dual_mul_f32 v12, v6, v9 :: v_dual_mul_f32 v13, v7, v8
    v_sub_f32 v10, v10, v11
    v_add_f32 v12, v12, v13
    global_store_b32 v4, v10, s[6:7]
    global_store_b32 v5, v12, s[6:7]
    s_branch .Lpairs
.Lothers:                                           // the dims behind
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, s47, v0
.Lother:
    v_cmp_gt_u32 vcc_lo, s48, v1
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    v_lshlrev_b32 v2, 2, v1
    global_load_b32 v6, v2, s[4:5]
    v_add_nc_u32 v1, 32, v1
    s_cmp_lg_u32 s46, 0
    s_cbranch_scc1 .Lpass
    global_load_b32 v16, v2, s[8:9]
.Lpass:
    s_wait_loadcnt 0
    v_mul_f32 v6, v6, v3
    v_mul_f32 v6, v6, v16
    global_store_b32 v2, v6, s[6:7]
    s_branch .Lother

.Lvalue:
    s_lshl_b32 s62, s59, 9                          // first column
    s_sub_co_i32 s66, s55, s62                      // columns left
    s_mov_b32 s63, 0
    s_lshl_b64 s[62:63], s[62:63], 2
    s_mul_hi_u32 s65, s2, s55
    s_mul_i32 s64, s2, s55
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[4:5], s[24:25], s[64:65]
    s_add_nc_u64 s[4:5], s[4:5], s[62:63]
    s_mul_hi_u32 s65, s61, s55
    s_mul_i32 s64, s61, s55
    s_lshl_b64 s[64:65], s[64:65], 2
    s_add_nc_u64 s[6:7], s[42:43], s[64:65]
    s_add_nc_u64 s[6:7], s[6:7], s[62:63]
    v_lshlrev_b32 v1, 4, v0
    s_cmp_lt_i32 s66, 512
    s_cbranch_scc1 .Lvalue_tail
    copy_512_columns
.Lvalue_tail:
    copy_columns s66
.Lend:
    s_endpgm
zrt_end
