// The (token, choice) pairs of a step sorted by expert, for matmul_wmma_experts_*: a stable counting sort. A wave does one
// expert: it counts the pairs of lower experts, after which its own begin, and its own; then it writes these in their order.
//
// A tile is up to 32 pairs of one expert. The tiles of an expert whose pairs begin at b are the slots b / 32 + expert and
// following. Their number, ceil(n / 32), is at most (b + n) / 32 - b / 32 + 1, so experts share no slot, whatever the
// numbers are, and no wave needs those of others. Other slots get tiles of 0 pairs.
//
// grid: x experts
// buffers: ids i32 [T][choices]; routes: i32 [slots][4], (expert, first pair, number of pairs, 0), then pairs i32 [T * choices],
//          token * choices + choice; counts i32, the first one T
// constants: choices, slots, experts
//
//   s[4:5] ids, s[6:7] routes, s[8:9] pairs, s10 choices, s11 slots, s12 number of pairs, s13 expert, s14 pairs of lower
//   experts, s15 of this one, s16 pairs done, s[17:21] slots
//   v0 lane, v1 byte offset of an id, v2 pair, v[4:11] ids of pairs v2 + 32 i, v[12:15] tile, v16, v17 scratch, v18 pairs of lower
//   experts, then the next place, v19 of this one
.include "zrt.inc"

.macro first_pairs
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, v0
    s_mov_b32 s16, 0
.endm

// 256 ids, those past the last of no expert
.macro load_ids
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[4+\i], -1
    v_add_nc_u32 v16, 32 * \i, v2
    v_cmpx_gt_u32 s12, v16
    global_load_b32 v[4+\i], v1, s[4:5] offset:128*\i
    s_mov_b32 exec_lo, -1
    .endr
    s_wait_loadcnt 0x0
.endm

.macro next_pairs label
    v_add_nc_u32 v1, 0x400, v1
    v_add_nc_u32 v2, 0x100, v2
    s_add_co_i32 s16, s16, 0x100
    s_cmp_lt_u32 s16, s12
    s_cbranch_scc1 \label
.endm

zrt_kernel name=sort_experts, buffers=3, constants=3, threads=32, vgprs=20, sgprs=22
    s_load_b128 s[4:7], s[0:1], 0x0
    s_load_b128 s[8:11], s[0:1], 0x10
    s_load_b32 s21, s[0:1], 0x20
    v_and_b32 v0, 31, v0
    s_mov_b32 s13, ttmp9
    s_wait_kmcnt 0x0
    s_load_b32 s12, s[8:9], 0x0
    s_mov_b32 s9, 0
    s_lshl_b32 s8, s11, 4
    s_add_nc_u64 s[8:9], s[6:7], s[8:9]
    s_mov_b32 s14, 0
    s_mov_b32 s15, 0
    v_mov_b32 v18, 0
    v_mov_b32 v19, 0
    s_wait_kmcnt 0x0
    s_mul_i32 s12, s12, s10
    first_pairs
    s_cmp_eq_u32 s12, 0
    s_cbranch_scc1 .Ltiles
.Lcount:
    load_ids
    .irp i, 4, 5, 6, 7, 8, 9, 10, 11
    v_cmp_gt_u32 vcc_lo, s13, v\i
    s_wait_alu 0xfffd
    v_bcnt_u32_b32 v18, vcc_lo, v18
    v_cmp_eq_u32 vcc_lo, s13, v\i
    s_wait_alu 0xfffd
    v_bcnt_u32_b32 v19, vcc_lo, v19
    .endr
    next_pairs .Lcount
    v_readfirstlane_b32 s14, v18
    v_readfirstlane_b32 s15, v19
    first_pairs
.Lwrite:
    load_ids
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    v_cmp_eq_u32 vcc_lo, s13, v[4+\i]
    s_wait_alu 0xfffd
    v_mbcnt_lo_u32_b32 v16, vcc_lo, v18
    v_bcnt_u32_b32 v18, vcc_lo, v18
    v_lshlrev_b32 v16, 2, v16
    v_add_nc_u32 v17, 32 * \i, v2
    v_cmpx_eq_u32 s13, v[4+\i]
    global_store_b32 v16, v17, s[8:9]
    s_mov_b32 exec_lo, -1
    .endr
    next_pairs .Lwrite
.Ltiles:
    s_wait_alu 0xf1ff
    s_lshr_b32 s17, s14, 5
    s_add_co_i32 s17, s17, s13          // its first slot
    s_add_co_i32 s18, s14, s15
    s_lshr_b32 s18, s18, 5
    s_add_co_i32 s19, s13, 1
    s_add_co_i32 s18, s18, s19          // the next expert's
    s_cmp_eq_u32 s19, s21
    s_cselect_b32 s18, s11, s18
    v_lshlrev_b32 v1, 5, v0             // pairs in earlier tiles
    v_add_nc_u32 v2, s17, v0
    s_mov_b32 s20, s17
    v_mov_b32 v12, s13
    v_mov_b32 v15, 0
.Lslots:
    v_cmpx_gt_u32 s18, v2
    v_add_nc_u32 v13, s14, v1
    v_sub_nc_u32 v14, s15, v1
    v_max_i32 v14, 0, v14
    v_min_i32 v14, 32, v14
    v_lshlrev_b32 v16, 4, v2
    global_store_b128 v16, v[12:15], s[6:7]
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, 0x400, v1
    v_add_nc_u32 v2, 32, v2
    s_add_co_i32 s20, s20, 32
    s_cmp_lt_u32 s20, s18
    s_cbranch_scc1 .Lslots
    s_endpgm
zrt_end
