// LOGITS_ADJUST: mask, bias, penalties and min_tokens of a row's slot, in this order. A lane has one logit; 1024 a
// workgroup, group x a row, group y a part of it.
//
// buffers: logits f32[L][V]; row_slot i32[L]; position i32[L]; record i32[slots][64]; counts i32[P][V]; end i32[E];
//     bias_id i32[B][n], ascending, and bias_value f32[B][n], or both absent; mask i32[M][V / 32 rounded up] and
//     mask_row i32[L], or both absent; adjusted f32[L][V]
// constants: V, slots, P, E, B, n, M
.include "zrt.inc"
.include "arith.inc"
.include "sample.inc"
.include "slots.inc"
zrt_kernel name=logits_adjust, buffers=11, constants=7, threads=1024, vgprs=16, sgprs=80

// v2 = -inf in the lanes of vcc
.macro forbid
    wait_vcc
    v_cndmask_b32_e64 v2, v2, 0xff800000, vcc_lo
.endm

    s_load_b512 s[4:19], s[0:1], 0x0                // logits, row_slot, position, record, counts, end, biases
    s_load_b128 s[20:23], s[0:1], 0x40              // mask, mask_row
    s_load_b96 s[24:26], s[0:1], 0x50               // adjusted, V
    s_load_b32 s61, s[0:1], 0x64                    // E
    s_load_b32 s60, s[0:1], 0x6c                    // n
    v_and_b32 v0, 0x3ff, v0
    s_and_b32 s29, ttmp7, 0xffff
    v_lshl_add_u32 v0, s29, 10, v0                  // the token
    s_lshl_b32 s30, ttmp9, 2
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s26, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_load_b32 s34, s[6:7], s30                     // the slot
    s_load_b32 s36, s[8:9], s30                     // the position
    s_mov_b32 s37, -1                               // the row of the mask
    s_cmp_eq_u64 s[20:21], 0
    s_cbranch_scc1 .Lrecord
    s_load_b32 s37, s[22:23], s30
.Lrecord:
    s_lshl_b32 s31, s26, 2
    sample_row 4, s31, 32
    sample_row 24, s31, 32
    v_lshlrev_b32 v1, 2, v0
    global_load_b32 v2, v1, s[4:5]
    s_wait_kmcnt 0x0
    s_mov_b32 s35, 0
    s_lshl_b64 s[34:35], s[34:35], 8
    s_add_nc_u64 s[10:11], s[10:11], s[34:35]
    s_load_b32 s38, s[10:11], 4*SLOT_FLAGS
    s_load_b32 s39, s[10:11], 4*SLOT_PROMPT_LEN
    s_load_b32 s40, s[10:11], 4*SLOT_MIN_TOKENS
    s_load_b32 s41, s[10:11], 4*SLOT_STOP_COUNT
    s_load_b96 s[44:46], s[10:11], 4*SLOT_REPETITION // and presence, frequency
    s_load_b96 s[48:50], s[10:11], 4*SLOT_PENALTY_ROW // and bias_row, bias_count
    s_load_b256 s[52:59], s[10:11], 4*SLOT_STOP_IDS
    s_wait_loadcnt 0x0
    s_wait_kmcnt 0x0

    s_cmp_lt_i32 s37, 0
    s_cbranch_scc1 .Lbias
    s_add_co_i32 s32, s26, 31
    s_lshr_b32 s32, s32, 5
    s_lshl_b32 s32, s32, 2                          // bytes of a mask
    s_mul_hi_u32 s33, s37, s32
    s_mul_i32 s32, s37, s32
    s_add_nc_u64 s[20:21], s[20:21], s[32:33]
    v_lshrrev_b32 v3, 5, v0
    v_lshlrev_b32 v3, 2, v3
    global_load_b32 v3, v3, s[20:21]
    s_wait_loadcnt 0x0
    v_lshrrev_b32 v3, v0, v3                        // by the token mod 32
    v_and_b32 v3, 1, v3
    v_cmp_eq_u32 vcc_lo, 0, v3
    forbid

.Lbias:
    s_cmp_eq_u64 s[16:17], 0
    s_cbranch_scc1 .Lpenalties
    s_and_b32 s32, s38, SLOT_FLAG_BIAS
    s_cbranch_scc0 .Lpenalties
    s_cmp_eq_u32 s50, 0
    s_cbranch_scc1 .Lpenalties
    s_lshl_b32 s60, s60, 2
    s_mul_hi_u32 s65, s49, s60
    s_mul_i32 s64, s49, s60
    s_add_nc_u64 s[16:17], s[16:17], s[64:65]
    s_add_nc_u64 s[18:19], s[18:19], s[64:65]
    s_clz_i32_u32 s32, s50
    s_lshr_b32 s32, 0x80000000, s32                 // the largest power of two that is not above the count
    v_mov_b32 v3, 0                                 // how many ids are not above the token
.Lhalve:
    v_add_nc_u32 v4, s32, v3
    v_cmp_ge_u32 vcc_lo, s50, v4
    wait_vcc
    s_and_saveexec_b32 s62, vcc_lo
    s_cbranch_execz .Lhalved
    v_lshlrev_b32 v5, 2, v4
    global_load_b32 v5, v5, s[16:17] offset:-4
    s_wait_loadcnt 0x0
    v_cmp_ge_u32 vcc_lo, v0, v5
    wait_vcc
    v_cndmask_b32 v3, v3, v4, vcc_lo
.Lhalved:
    s_mov_b32 exec_lo, s62
    s_lshr_b32 s32, s32, 1
    s_wait_alu 0xfffe
    s_cmp_lg_u32 s32, 0
    s_cbranch_scc1 .Lhalve
    v_cmp_lt_u32 vcc_lo, 0, v3
    wait_vcc
    s_and_saveexec_b32 s62, vcc_lo
    s_cbranch_execz .Lbiased
    v_lshlrev_b32 v3, 2, v3
    global_load_b32 v4, v3, s[16:17] offset:-4
    s_wait_loadcnt 0x0
    v_cmp_eq_u32 vcc_lo, v0, v4
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lbiased
    global_load_b32 v4, v3, s[18:19] offset:-4
    s_wait_loadcnt 0x0
    v_add_f32 v2, v2, v4
.Lbiased:
    s_mov_b32 exec_lo, s62

.Lpenalties:
    s_and_b32 s32, s38, SLOT_FLAG_PENALTIES
    s_cbranch_scc0 .Lminimum
    s_mul_hi_u32 s65, s48, s31
    s_mul_i32 s64, s48, s31
    s_add_nc_u64 s[12:13], s[12:13], s[64:65]
    global_load_b32 v3, v1, s[12:13]                // the count
    f32_div v4, v2, s44, v5, v6, v7, v8, v9, v10
    v_mul_f32 v5, s44, v2
    v_cmp_lt_f32 vcc_lo, 0, v2
    wait_vcc
    v_cndmask_b32 v4, v5, v4, vcc_lo
    s_wait_loadcnt 0x0
    v_cmp_ne_u32 vcc_lo, 0, v3
    wait_vcc
    v_cndmask_b32 v2, v2, v4, vcc_lo
    v_and_b32 v3, 0x7fffffff, v3                    // in the output
    v_cvt_f32_i32 v4, v3
    v_mul_f32 v4, s46, v4
    v_sub_f32 v4, v2, v4
    v_subrev_f32 v4, s45, v4
    v_cmp_ne_u32 vcc_lo, 0, v3
    wait_vcc
    v_cndmask_b32 v2, v2, v4, vcc_lo

.Lminimum:
    s_sub_co_i32 s64, s36, s39
    s_cmp_lt_i32 s64, s40
    s_cbranch_scc0 .Lstore
.Lend_id:
    s_load_b32 s32, s[14:15], 0x0
    s_add_nc_u64 s[14:15], s[14:15], 4
    s_sub_co_i32 s61, s61, 1
    s_wait_kmcnt 0x0
    v_cmp_eq_u32 vcc_lo, s32, v0
    forbid
    s_cmp_lg_u32 s61, 0
    s_cbranch_scc1 .Lend_id
    .irp j, 0, 1, 2, 3, 4, 5, 6, 7
    s_cmp_le_u32 s41, \j
    s_cbranch_scc1 .Lstore
    v_cmp_eq_u32 vcc_lo, s[52+\j], v0
    forbid
    .endr
.Lstore:
    global_store_b32 v1, v2, s[24:25]
.Lend:
    s_endpgm
zrt_end
