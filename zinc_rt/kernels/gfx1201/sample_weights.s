// SAMPLE, second: the weight of each token in the sorted order, +0 where min_p drops it and behind the top_k, up to
// the next multiple of 16. The best token always stays.
//
// buffers: pairs u32[L][P][2] of sample_sort; sampling f32[L][4]; weights f32[L][2 P]
// constants: V; P, a multiple of 16; bytes of a row of pairs
.include "zrt.inc"
.include "arith.inc"
.include "sample.inc"
zrt_kernel name=sample_weights, buffers=3, constants=3, threads=1024, vgprs=24, sgprs=32

    s_load_b128 s[4:7], s[0:1], 0x0                 // pairs, sampling
    s_load_b64 s[8:9], s[0:1], 0x10                 // weights
    s_load_b96 s[12:14], s[0:1], 0x18               // V, P, bytes
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s15, ttmp9, 4
    s_and_b32 s16, ttmp7, 0xffff
    v_lshl_add_u32 v0, s16, 10, v0                  // the place in the order
    s_wait_kmcnt 0x0
    s_load_b128 s[16:19], s[6:7], s15               // temperature, top_k, top_p, min_p
    sample_row 4, s14, 20
    sample_row 8, s14, 20
    s_wait_kmcnt 0x0
    s_cmp_le_f32 s16, 0
    s_cbranch_scc1 .Lend                            // greedy
    s_load_b32 s15, s[4:5], 0x0                     // the best key
    sample_candidates s22, s17, s12, s23
    s_add_co_i32 s23, s22, 15
    s_and_b32 s23, s23, 0xfffffff0
    v_cmp_gt_u32 vcc_lo, s23, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend

    s_wait_kmcnt 0x0
    v_mov_b32 v2, s15
    sample_logit v1, v2                             // the maximum
    v_mov_b32 v3, s16
    v_sub_f32 v4, v1, v1                            // 0, or NaN as infinity less infinity
    f32_div v4, v4, v3, v6, v7, v8, v9, v10, v11
    f32_exp v5, v4, v6, v7, v8                      // the best weight
    v_mul_f32 v5, s19, v5                           // the least that stays
    v_mov_b32 v4, 0
    v_lshlrev_b32 v12, 2, v0
    v_cmp_gt_u32 vcc_lo, s22, v0
    wait_vcc
    s_and_saveexec_b32 s24, vcc_lo
    v_lshlrev_b32 v2, 3, v0
    global_load_b32 v2, v2, s[4:5]
    s_wait_loadcnt 0x0
    sample_logit v4, v2
    v_sub_f32 v4, v4, v1
    f32_div v4, v4, v3, v6, v7, v8, v9, v10, v11
    f32_exp v4, v4, v6, v7, v8
    s_cmp_gt_f32 s19, 0
    s_cbranch_scc0 .Lstore
    v_cmp_ge_f32 s25, v4, v5
    v_cmp_eq_u32 vcc_lo, 0, v0
    s_wait_alu 0xf1fd
    s_or_b32 vcc_lo, vcc_lo, s25
    s_wait_alu 0xfffe
    v_cndmask_b32 v4, 0, v4, vcc_lo
.Lstore:
    s_mov_b32 exec_lo, s24
    global_store_b32 v12, v4, s[8:9]
.Lend:
    s_endpgm
zrt_end
