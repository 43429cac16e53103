// LOGPROBS, after argmax: what log-probabilities subtract from a row's logits, the largest one and
// log(dot(exp(x - largest), 1)). One workgroup a row; a lane is one of the dot's 128 accumulators.
//
// buffers: logits f32[L][V]; best i32[L] of argmax; norm f32[L][2], written
// constants: V
.include "zrt.inc"
.include "arith.inc"
.include "sample.inc"
zrt_kernel name=log_sum, buffers=3, constants=1, threads=128, vgprs=16, sgprs=24, lds=16

    s_load_b128 s[4:7], s[0:1], 0x0                 // logits, best
    s_load_b96 s[8:10], s[0:1], 0x10                // norm, V
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s11, ttmp9, 2
    s_wait_kmcnt 0x0
    s_load_b32 s12, s[6:7], s11
    s_lshl_b32 s13, s10, 2
    sample_row 4, s13, 14
    s_wait_kmcnt 0x0
    s_lshl_b32 s12, s12, 2
    s_load_b32 s12, s[4:5], s12                     // the largest
    v_mov_b32 v1, 0                                 // the sum
    v_mov_b32 v2, v0
    s_mov_b32 s16, exec_lo
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s10, v2
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lsummed
.Lnext:
    v_lshlrev_b32 v3, 2, v2
    global_load_b32 v3, v3, s[4:5]
    s_wait_loadcnt 0x0
    v_subrev_f32 v3, s12, v3
    f32_exp v3, v3, v4, v5, v6
    v_add_f32 v1, v1, v3
    v_add_nc_u32 v2, 0x80, v2
    v_cmp_gt_u32 vcc_lo, s10, v2
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execnz .Lnext
.Lsummed:
    s_mov_b32 exec_lo, s16
    f32_butterfly v1, v2
    v_lshrrev_b32 v3, 5, v0
    v_lshlrev_b32 v3, 2, v3
    ds_store_b32 v3, v1                             // every lane of a wave the same
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    v_mov_b32 v2, 0
    v_cmp_eq_u32 vcc_lo, 0, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    ds_load_b128 v[4:7], v2
    s_wait_dscnt 0x0
    f32_sum4 v1, v4, v5, v6, v7
    f32_log v9, v1, v2, v3, v4, v5, v6
    v_mov_b32 v8, s12
    s_lshl_b32 s17, ttmp9, 3
    v_mov_b32 v2, s17
    global_store_b64 v2, v[8:9], s[8:9]
.Lend:
    s_endpgm
zrt_end
