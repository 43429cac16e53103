// Projections of many tokens in canonical-1-q8 by weights in blocks of 32, q8_0 and q4_0, on the matrix unit: a wave
// makes 16 rows of 16 tokens. A block's dots are two v_wmma_i32_16x16x16_iu8, exact integers, so which k lies where
// changes no bit as long as it lies alike in both. Then float32(dot) * (dw * dx) goes to the block's accumulator of the
// oracle's 32. A wave has four at a time: those of four steps of 128 (q8.inc) and one quarter of each. It passes over
// the row eight times, by halves of a group and quarters, and adds up as the butterfly does, neighbours first.
//
// grid: x blocks of 16 tokens of the capacity, y blocks of 64 rows
// buffers: records of activations (q8.inc), one a token; weight, packed as repack.py says, k whole groups; y f32 [T][n];
//          counts i32[3], the first one T
// constants: n, k, bytes a row of plane 0, offset and bytes a row of plane 1, 0
//
//   s[4:11] buffers, s12 n, s13 k, s14 to s16 planes, s20 first row, s21 first token, s22 T, s23 groups, s24 loop count
//   s18, s19 rows and tokens from those on, less one; s[26:27], s[28:29], s[30:31] first row in planes 0 and 1, records; s[34:39] the same of a group
//   v0 lane, v1 row of A, column of B and D, v2 upper half of the wave; v3, v4, v5, v6 byte offsets of quants, scales,
//   quants of x, its sums and d; v[16:31], v[32:47] quants, v[48:49] scales, v[50:53] sums, v[54:57] d of x, v[58:61] d,
//   v[62:65] A, v[66:69] B, v[70:77] D, v[78:79] scratch
//   v[80:111], v[112:143], v[144:175] accumulators [step][row], v[176:183] the first half's
.include "zrt.inc"
.include "arith.inc"
.include "q8.inc"

.set ACC, 80
.set PAIR, 112
.set FOUR, 144
.set HALF, 176

// --- weights: loads of four steps' quants, v[62:65] = a step's

.set q8_0_LESS, 128
.set q8_0_GROUP, 1024
.macro q8_0_begin
.endm
.macro q8_0_quants half, quarter
    .irp t, 0, 1, 2, 3
    global_load_b128 v[16+4*\t:19+4*\t], v3, s[34:35] offset:512*\half+128*\quarter+16*\t
    .endr
.endm
.macro q8_0_step step
    .irp t, 0, 1, 2, 3
    v_mov_b32 v[62+\t], v[16+4*\t+\step]
    .endr
.endm

.set q4_0_LESS, 8
.set q4_0_GROUP, 512
.macro q4_0_begin
    s_mov_b32 s40, 0x0f0f0f0f
.endm
.macro q4_0_quants half, quarter
    .irp t, 0, 1, 2, 3
    global_load_b64 v[16+2*\t:17+2*\t], v3, s[34:35] offset:8*\half+128*\quarter+16*\t
    .endr
.endm
.macro q4_0_step step
    .irp t, 0, 1, 2, 3
    .if \step & 1
    v_lshrrev_b32 v[62+\t], 4, v[16+2*\t+\step/2]
    v_and_b32 v[62+\t], s40, v[62+\t]
    .else
    v_and_b32 v[62+\t], s40, v[16+2*\t+\step/2]
    .endif
    .endr
.endm

// --- one step's block of one group

.macro step_block type, step, into
    \type\()_step \step
    .irp t, 0, 1, 2, 3
    v_mov_b32 v[66+\t], v[32+4*\t+\step]
    .endr
    v_mul_i32_i24 v70, -\type\()_LESS, v[50+\step] // weights were \type\()_LESS too large
    .irp r, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[70+\r], v70
    .endr
    v_wmma_i32_16x16x16_iu8 v[70:77], v[62:63], v[66:67], v[70:77] neg_lo:[0,1,0]
    v_wmma_i32_16x16x16_iu8 v[70:77], v[64:65], v[68:69], v[70:77] neg_lo:[0,1,0]
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_mul_f32_dpp v78, v[58+\step], v[54+\step] row_share:\r row_mask:0xf bank_mask:0xf
    v_cvt_f32_i32 v79, v[70+\r]
    v_mul_f32 v79, v79, v78
    v_add_f32 v[\into+8*\step+\r], v[\into+8*\step+\r], v79
    .endr
.endm

// v[into + 8 * step + r] += those of a half's four steps in one quarter, over all groups
.macro pass type, half, quarter, into
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    v_dual_mov_b32 v[\into+4*\i], 0 :: v_dual_mov_b32 v[\into+4*\i+1], 0
    v_dual_mov_b32 v[\into+4*\i+2], 0 :: v_dual_mov_b32 v[\into+4*\i+3], 0
    .endr
    s_mov_b64 s[34:35], s[26:27]
    s_mov_b64 s[36:37], s[28:29]
    s_mov_b64 s[38:39], s[30:31]
    s_mov_b32 s24, s23
.Lgroup_\half\()_\quarter:
    \type\()_quants \half, \quarter
    .irp t, 0, 1, 2, 3
    global_load_b128 v[32+4*\t:35+4*\t], v5, s[38:39] offset:512*\half+128*\quarter+16*\t
    .endr
    global_load_b64 v[48:49], v4, s[36:37] offset:8*\half+16*\quarter
    global_load_b128 v[50:53], v6, s[38:39] offset:Q8_SUMS+16*\half+32*\quarter
    global_load_b128 v[54:57], v6, s[38:39] offset:Q8_D+16*\half+32*\quarter
    s_add_nc_u64 s[34:35], s[34:35], \type\()_GROUP
    s_add_nc_u64 s[36:37], s[36:37], 64
    s_add_nc_u64 s[38:39], s[38:39], Q8_32_GROUP
    s_wait_loadcnt 0x0
    v_cvt_f32_f16 v58, v48
    v_lshrrev_b32 v48, 16, v48
    v_cvt_f32_f16 v60, v49
    v_lshrrev_b32 v49, 16, v49
    v_cvt_f32_f16 v59, v48
    v_cvt_f32_f16 v61, v49
    .irp step, 0, 1, 2, 3
    step_block \type, \step, \into
    .endr
    s_sub_co_i32 s24, s24, 1
    s_cmp_lg_u32 s24, 0
    s_cbranch_scc1 .Lgroup_\half\()_\quarter
.endm

.macro add_all to, from
    .irp step, 0, 1, 2, 3
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_f32 v[\to+8*\step+\r], v[\to+8*\step+\r], v[\from+8*\step+\r]
    .endr
    .endr
.endm

// v[PAIR:PAIR+7] = a half's sums: its quarters', then its steps'
.macro half_sums type, half
    pass \type, \half, 0, PAIR
    pass \type, \half, 1, ACC
    add_all PAIR, ACC
    pass \type, \half, 2, FOUR
    pass \type, \half, 3, ACC
    add_all FOUR, ACC
    add_all PAIR, FOUR
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_f32 v[PAIR+\r], v[PAIR+\r], v[PAIR+8+\r]
    v_add_f32 v[PAIR+16+\r], v[PAIR+16+\r], v[PAIR+24+\r]
    .endr
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_f32 v[PAIR+\r], v[PAIR+\r], v[PAIR+16+\r]
    .endr
.endm

.macro zrt_of_q8_32 type
zrt_kernel name=matmul_q8_32_\type, buffers=4, constants=6, threads=128, vgprs=184, sgprs=42
    s_load_b256 s[4:11], s[0:1], 0x0
    s_load_b128 s[12:15], s[0:1], 0x20
    s_load_b64 s[16:17], s[0:1], 0x30
    v_and_b32 v0, 31, v0
    s_bfe_u32 s20, ttmp8, 0x50019       // wave in the workgroup
    s_and_b32 s33, ttmp7, 0xffff
    s_lshl_b32 s33, s33, 2
    s_add_co_i32 s20, s20, s33
    s_lshl_b32 s20, s20, 4
    s_lshl_b32 s21, ttmp9, 4
    v_and_b32 v1, 15, v0
    v_lshrrev_b32 v2, 4, v0
    \type\()_begin
    s_wait_kmcnt 0x0
    s_load_b32 s22, s[10:11], 0x0
    s_wait_kmcnt 0x0
    s_cmp_ge_u32 s20, s12
    s_cbranch_scc1 .Lend
    s_cmp_ge_u32 s21, s22
    s_cbranch_scc1 .Lend
    s_lshr_b32 s23, s13, 10
    s_mul_hi_u32 s27, s20, s14
    s_mul_i32 s26, s20, s14
    s_add_nc_u64 s[26:27], s[26:27], s[6:7]
    s_mul_hi_u32 s29, s20, s16
    s_mul_i32 s28, s20, s16
    s_add_nc_u64 s[28:29], s[28:29], s[6:7]
    s_mov_b32 s34, s15
    s_mov_b32 s35, 0
    s_add_nc_u64 s[28:29], s[28:29], s[34:35]
    s_mul_i32 s33, s23, Q8_32_GROUP     // bytes of a record
    s_mul_hi_u32 s31, s21, s33
    s_mul_i32 s30, s21, s33
    s_add_nc_u64 s[30:31], s[30:31], s[4:5]
    // Rows and tokens past the last are the last again: computed, never stored.
    s_not_b32 s18, s20
    s_add_co_i32 s18, s18, s12
    s_not_b32 s19, s21
    s_add_co_i32 s19, s19, s22
    v_lshlrev_b32 v7, 6, v2             // 4 lanes of quants
    v_min_u32 v8, s18, v1
    v_mul_lo_u32 v8, v8, s14
    v_add_nc_u32 v3, v8, v7
    v_lshl_add_u32 v8, v2, 3, v1        // each half's own rows first: row_share counts from a half's lane 0
    v_and_b32 v8, 15, v8
    v_min_u32 v8, s18, v8
    v_mul_lo_u32 v4, v8, s16
    v_min_u32 v8, s19, v1
    v_mul_lo_u32 v6, v8, s33
    v_add_nc_u32 v5, v6, v7
    half_sums \type, 0
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[HALF+\r], v[PAIR+\r]
    .endr
    half_sums \type, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_f32 v[HALF+\r], v[HALF+\r], v[PAIR+\r]
    .endr
    v_add_nc_u32 v1, s21, v1            // token
    v_lshl_add_u32 v2, v2, 3, s20       // row
    v_mul_lo_u32 v3, v1, s12
    v_add_lshl_u32 v3, v3, v2, 2
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_cmpx_gt_u32 s22, v1
    v_cmpx_gt_u32 s12, v2
    global_store_b32 v3, v[HALF+\r], s[8:9] offset:4*\r
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v2, 1, v2
    .endr
.Lend:
    s_endpgm
zrt_end
.endm
