// The greedy token: the largest logit, ties to the lower id, a NaN above everything (as NumPy has it).
// Beside it the first logit that is NaN or infinite. One workgroup a row; a lane looks at every 1024th logit.
//
// buffers: logits f32[L][V]; token i32[L]; nonfinite i32[L] or absent, -1 where all are finite
// constants: V
.include "zrt.inc"
.include "best.inc"
.set FIRSTS, 256                                    // in LDS, behind the waves' best pairs
zrt_kernel name=argmax, buffers=3, constants=1, threads=1024, vgprs=16, sgprs=24, lds=384

// Every lane of the wave ends with the least v9. EXEC = -1
.macro least_butterfly
    .irp distance, 1, 2, 4, 8
    v_mov_b32_dpp v10, v9 row_xmask:\distance row_mask:0xf bank_mask:0xf
    v_min_u32 v9, v9, v10
    .endr
    v_permlanex16_b32 v10, v9, 0, 0
    v_min_u32 v9, v9, v10
.endm

    s_load_b128 s[4:7], s[0:1], 0x0                 // logits, token
    s_load_b96 s[16:18], s[0:1], 0x10               // nonfinite, V
    v_and_b32 v0, 0x3ff, v0
    s_wait_kmcnt 0x0
    s_mul_i32 s10, ttmp9, s18
    s_mul_hi_u32 s11, ttmp9, s18
    s_lshl_b64 s[10:11], s[10:11], 2
    s_add_nc_u64 s[4:5], s[4:5], s[10:11]           // the row
    best_none v2, v3
    v_mov_b32 v9, -1                                // the first that is no number
    s_mov_b32 s9, 0
.Lscan:
    v_add_nc_u32 v1, s9, v0
    v_cmp_gt_u32 vcc_lo, s18, v1
    s_and_saveexec_b32 s12, vcc_lo
    s_cbranch_execz .Lpast
    v_lshlrev_b32 v4, 2, v1
    global_load_b32 v4, v4, s[4:5]
    s_wait_loadcnt 0x0
    best_key v5, v4, v6, 0x7fffffff
    v_cmp_gt_i32 vcc_lo, v5, v3
    v_not_b32 v6, v1
    s_wait_alu 0xfffd
    v_cndmask_b32 v3, v3, v5, vcc_lo
    v_cndmask_b32 v2, v2, v6, vcc_lo
    v_and_b32 v6, 0x7fffffff, v4
    v_cmp_le_u32 vcc_lo, 0x7f800000, v6
    s_wait_alu 0xfffd
    v_cndmask_b32 v6, -1, v1, vcc_lo
    v_min_u32 v9, v9, v6
.Lpast:
    s_mov_b32 exec_lo, s12
    s_addk_co_i32 s9, 0x400
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s9, s18
    s_cbranch_scc1 .Lscan

    best_butterfly v[2:3], v2, v3, v[4:5], v4, v5
    least_butterfly
    v_lshrrev_b32 v6, 5, v0                         // which wave
    v_lshlrev_b32 v7, 3, v6
    v_lshlrev_b32 v6, 2, v6
    v_and_b32 v8, 31, v0
    v_cmp_eq_u32 vcc_lo, 0, v8
    s_and_saveexec_b32 s12, vcc_lo
    ds_store_b64 v7, v[2:3]
    ds_store_b32 v6, v9 offset:FIRSTS
    s_mov_b32 exec_lo, s12
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    v_cmp_gt_u32 vcc_lo, 32, v0                     // the first wave: one lane for each of the 32
    s_and_saveexec_b32 s12, vcc_lo
    s_cbranch_execz .Lend
    v_lshlrev_b32 v7, 3, v0
    v_lshlrev_b32 v6, 2, v0
    ds_load_b64 v[2:3], v7
    ds_load_b32 v9, v6 offset:FIRSTS
    s_wait_dscnt 0x0
    best_butterfly v[2:3], v2, v3, v[4:5], v4, v5
    least_butterfly
    v_not_b32 v2, v2
    v_cmp_eq_u32 vcc_lo, 0, v0
    s_and_saveexec_b32 s12, vcc_lo
    v_mov_b32 v4, ttmp9
    v_lshlrev_b32 v4, 2, v4
    global_store_b32 v4, v2, s[6:7]
    s_cmp_eq_u64 s[16:17], 0
    s_cbranch_scc1 .Lend
    global_store_b32 v4, v9, s[16:17]
.Lend:
    s_endpgm
zrt_end
