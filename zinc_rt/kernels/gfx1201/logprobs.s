// LOGPROBS, last: the token's log-probability, NaN for token -1, and the likeliest tokens in ARGMAX's order: as many
// passes, each for the best pair of logit and id behind the one before. One workgroup a row; a lane looks at every
// 1024th logit.
//
// buffers: logits f32[L][V]; token i32[L]; norm f32[L][2] of log_sum; logprob f32[L]; top_id i32[L][n] and
//     top_logprob f32[L][n], or both absent
// constants: V, n
.include "zrt.inc"
.include "best.inc"
.include "sample.inc"
zrt_kernel name=logprobs, buffers=6, constants=2, threads=1024, vgprs=16, sgprs=40, lds=256

    s_load_b256 s[4:11], s[0:1], 0x0                // logits, token, norm, logprob
    s_load_b128 s[12:15], s[0:1], 0x20              // top_id, top_logprob
    s_load_b64 s[16:17], s[0:1], 0x30               // V, n
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s18, ttmp9, 2
    s_lshl_b32 s19, ttmp9, 3
    s_mov_b32 s26, exec_lo
    v_cmp_eq_u32 s27, 0, v0                         // the lane that stores
    s_wait_kmcnt 0x0
    s_load_b32 s20, s[6:7], s18                     // the token
    s_load_b64 s[22:23], s[8:9], s19                // the largest, the logarithm of the sum
    s_lshl_b32 s21, s16, 2
    sample_row 4, s21, 24
    s_wait_kmcnt 0x0
    s_cmp_lt_i32 s20, 0
    s_cselect_b32 s21, 0, s20
    s_lshl_b32 s21, s21, 2
    s_load_b32 s21, s[4:5], s21
    s_wait_kmcnt 0x0
    s_sub_f32 s21, s21, s22
    s_sub_f32 s21, s21, s23
    s_cmp_lt_i32 s20, 0
    s_cselect_b32 s21, 0x7fc00000, s21
    v_mov_b32 v1, s18
    v_mov_b32 v2, s21
    s_and_b32 exec_lo, s26, s27
    global_store_b32 v1, v2, s[10:11]
    s_mov_b32 exec_lo, s26
    s_cmp_eq_u64 s[12:13], 0
    s_cbranch_scc1 .Lend

    s_mul_i32 s28, ttmp9, s17
    s_mul_hi_u32 s29, ttmp9, s17
    s_lshl_b64 s[28:29], s[28:29], 2
    s_add_nc_u64 s[12:13], s[12:13], s[28:29]
    s_add_nc_u64 s[14:15], s[14:15], s[28:29]
    v_lshrrev_b32 v14, 5, v0
    v_lshlrev_b32 v14, 3, v14                       // where the wave leaves its best
    v_and_b32 v15, 31, v0
    v_lshlrev_b32 v15, 3, v15                       // where the lane finds another wave's
    v_mov_b32 v13, 0x7fffffff                       // above every pair
    v_mov_b32 v12, 0
    s_mov_b32 s33, 0                                // found
.Lpass:
    best_none v2, v3
    s_mov_b32 s31, 0
    s_wait_alu 0xfffe
.Lscan:
    v_add_nc_u32 v1, s31, v0
    v_cmp_gt_u32 vcc_lo, s16, v1
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s32, vcc_lo
    s_cbranch_execz .Lpast
    v_lshlrev_b32 v4, 2, v1
    global_load_b32 v4, v4, s[4:5]
    s_wait_loadcnt 0x0
    best_key v7, v4, v8, 0x7ffffffe
    v_not_b32 v6, v1
    v_cmp_lt_i64 vcc_lo, v[6:7], v[12:13]
    s_wait_alu 0xfffd
    s_and_b32 exec_lo, exec_lo, vcc_lo
    best_take v[2:3], v2, v3, v[6:7], v6, v7
.Lpast:
    s_mov_b32 exec_lo, s32
    s_addk_co_i32 s31, 0x400
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s31, s16
    s_cbranch_scc1 .Lscan

    best_butterfly v[2:3], v2, v3, v[4:5], v4, v5
    ds_store_b64 v14, v[2:3]                        // every lane of a wave the same
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    ds_load_b64 v[2:3], v15
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    best_butterfly v[2:3], v2, v3, v[4:5], v4, v5
    v_mov_b32 v12, v2
    v_mov_b32 v13, v3
    v_ashrrev_i32 v4, 31, v3
    v_and_b32 v4, 0x7fffffff, v4
    v_xor_b32 v4, v4, v3                            // the logit
    v_subrev_f32 v4, s22, v4
    v_subrev_f32 v4, s23, v4
    v_not_b32 v5, v2
    s_lshl_b32 s34, s33, 2
    s_wait_alu 0xfffe
    v_mov_b32 v1, s34
    s_and_b32 exec_lo, s26, s27
    global_store_b32 v1, v5, s[12:13]
    global_store_b32 v1, v4, s[14:15]
    s_mov_b32 exec_lo, s26
    s_add_co_i32 s33, s33, 1
    s_cmp_lt_u32 s33, s17
    s_cbranch_scc1 .Lpass
.Lend:
    s_endpgm
zrt_end
