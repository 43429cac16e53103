// SAMPLE, first: a row's tokens sorted by falling logit, ties to the lower id, NaN last. One workgroup a row.
//
// A radix sort from the lowest of eight hexadecimal digits up. A work-item owns a run of neighbouring pairs and a
// counter of its own for each digit; LDS holds the counters digit by digit, within that in the order of the items,
// so their running sums are where each item's first pair of each digit goes, and the sort is stable.
//
// buffers: logits f32[L][V]; sampling f32[L][4]; pairs u32[L][P][2], key (sample.inc) and id, sorted; room likewise
// constants: V, at most 262144; P, not below V; bytes of a row of pairs
.include "zrt.inc"
.include "sample.inc"
zrt_kernel name=sample_sort, buffers=4, constants=3, threads=1024, vgprs=32, sgprs=32, lds=65536

.macro all_waves
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
.endm

// Pairs that other waves stored: their compute unit may have another first cache.
.macro all_waves_see_memory
    s_wait_storecnt 0x0
    all_waves
    global_inv scope:SCOPE_SE
    s_wait_loadcnt 0x0
.endm

// For each pair of the item, in order: loads it (`load`) and finds the counter of its digit; `body`.
.macro each_pair load, body
    v_mov_b32 v4, v1
    v_cmp_lt_u32 vcc_lo, v1, v2
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s20, vcc_lo
    s_cbranch_execz .Lnone\@
.Lpair\@:
    v_lshlrev_b32 v5, 3, v4
    \load v5
    s_wait_loadcnt 0x0
    v_bfe_u32 v8, v6, s19, 4
    v_lshl_add_u32 v8, v8, 12, v3
    \body
    v_add_nc_u32 v4, 1, v4
    v_cmp_lt_u32 vcc_lo, v4, v2
    s_wait_alu 0xfffd
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execnz .Lpair\@
.Lnone\@:
    s_mov_b32 exec_lo, s20
.endm

.macro load_key at
    global_load_b32 v6, \at, s[8:9]
.endm

.macro load_pair at
    global_load_b64 v[6:7], \at, s[8:9]
.endm

.macro count_it
    ds_add_u32 v8, v14
.endm

.macro place_it
    ds_add_rtn_u32 v8, v8, v14
    s_wait_dscnt 0x0
    v_lshlrev_b32 v8, 3, v8
    global_store_b64 v8, v[6:7], s[10:11]
.endm

    s_load_b256 s[4:11], s[0:1], 0x0                // logits, sampling, pairs, room
    s_load_b96 s[12:14], s[0:1], 0x20               // V, P, bytes
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s15, ttmp9, 4
    s_wait_kmcnt 0x0
    s_load_b32 s15, s[6:7], s15                     // the temperature
    s_lshl_b32 s16, s12, 2
    sample_row 4, s16, 20
    sample_row 8, s14, 20
    sample_row 10, s14, 20
    s_wait_kmcnt 0x0
    s_cmp_le_f32 s15, 0
    s_cbranch_scc1 .Lend                            // greedy: nobody reads the order

    v_mov_b32 v4, v0
    v_cmp_gt_u32 vcc_lo, s12, v4
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s20, vcc_lo
    s_cbranch_execz .Lkeyed
.Lkey:
    v_lshlrev_b32 v5, 2, v4
    global_load_b32 v6, v5, s[4:5]
    s_wait_loadcnt 0x0
    sample_key v7, v6, v8
    v_mov_b32 v6, v7
    v_mov_b32 v7, v4
    v_lshlrev_b32 v5, 3, v4
    global_store_b64 v5, v[6:7], s[8:9]
    v_add_nc_u32 v4, 0x400, v4
    v_cmp_gt_u32 vcc_lo, s12, v4
    s_wait_alu 0xfffd
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execnz .Lkey
.Lkeyed:
    s_mov_b32 exec_lo, s20
    all_waves_see_memory

    s_add_co_i32 s16, s12, 0x3ff
    s_lshr_b32 s16, s16, 10                         // pairs an item
    v_mul_lo_u32 v1, v0, s16                        // its first
    v_add_nc_u32 v2, s16, v1
    v_min_u32 v2, s12, v2                           // past its last
    v_lshlrev_b32 v3, 2, v0                         // its counter of digit 0; the next is 4096 bytes on
    v_mov_b32 v14, 1
    v_lshlrev_b32 v12, 6, v0                        // the sixteen counters it sums
    v_lshrrev_b32 v13, 5, v0
    v_lshlrev_b32 v13, 2, v13                       // its wave's total
    v_and_b32 v15, 31, v0
    s_mov_b32 s19, 0                                // the digit's lowest bit
.Ldigit:
    v_mov_b32 v9, 0
    .irp digit, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    ds_store_b32 v3, v9 offset:4096*\digit
    .endr
    each_pair load_key, count_it
    all_waves

    // The running sums of all counters, each without itself: of an item's sixteen,
    .irp j, 0, 1, 2, 3
    ds_load_b128 v[16+4*\j:19+4*\j], v12 offset:16*\j
    .endr
    s_wait_dscnt 0x0
    .irp j, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    v_add_nc_u32 v8, v9, v[\j]
    v_mov_b32 v[\j], v9
    v_mov_b32 v9, v8
    .endr
    // of the items of a wave,
    v_mov_b32 v10, v9
    .irp distance, 1, 2, 4, 8
    v_add_nc_u32_dpp v10, v10, v10 row_shr:\distance row_mask:0xf bank_mask:0xf
    .endr
    v_permlanex16_b32 v11, v10, -1, -1              // the other row's last
    v_add_nc_u32_dpp v10, v11, v10 quad_perm:[0,1,2,3] row_mask:0xa bank_mask:0xf
    v_sub_nc_u32 v9, v10, v9
    // and of the waves, whose totals pass through the first 128 bytes.
    all_waves
    v_cmp_eq_u32 vcc_lo, 31, v15
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s20, vcc_lo
    ds_store_b32 v13, v10
    s_mov_b32 exec_lo, s20
    all_waves
    v_lshlrev_b32 v8, 2, v15
    ds_load_b32 v10, v8
    v_cmp_lt_u32 vcc_lo, v8, v13                    // the waves before this one
    s_wait_alu 0xfffd
    s_wait_dscnt 0x0
    v_cndmask_b32 v10, 0, v10, vcc_lo
    .irp distance, 1, 2, 4, 8
    v_add_nc_u32_dpp v10, v10, v10 row_xmask:\distance row_mask:0xf bank_mask:0xf
    .endr
    v_permlanex16_b32 v11, v10, 0, 0
    v_add3_u32 v9, v9, v10, v11
    .irp j, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    v_add_nc_u32 v[\j], v[\j], v9
    .endr
    all_waves
    .irp j, 0, 1, 2, 3
    ds_store_b128 v12, v[16+4*\j:19+4*\j] offset:16*\j
    .endr
    all_waves

    each_pair load_pair, place_it
    all_waves_see_memory
    s_mov_b64 s[22:23], s[8:9]
    s_mov_b64 s[8:9], s[10:11]
    s_mov_b64 s[10:11], s[22:23]                    // eight times: back where it began
    s_add_co_i32 s19, s19, 4
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, 32
    s_cbranch_scc1 .Ldigit
.Lend:
    s_endpgm
zrt_end
