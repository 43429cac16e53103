// Projections of many tokens in wmma-f16 (docs/wmma-f16.md) on the matrix unit: one text, made once a weight type.
// A workgroup of four waves computes 64 rows of 128 tokens. Each step of 128 elements of k, every wave converts 16
// rows to halves in LDS; after a barrier each multiplies 32 rows by 64 tokens, eight v_wmma_f32_16x16x16_f16 for 16
// elements of k. LDS has two buffers, so one barrier a step is enough: a buffer is written again after the barrier that
// follows its last read.
//
// grid: x blocks of 128 tokens of the capacity, y blocks of 64 rows
// buffers: halves of x (round_rows.s); weight, packed as repack.py says; y f32 [T][n]; factors f32 [T] of round_rows.s;
//          scale f32 (one), bias f32 (n): 0 where absent; counts i32, the first one T
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, bytes a row of halves
//
//   s[4:5] halves, at the step; s[6:7] weight, s[8:9] y, s[10:11] factors, s[12:13] scale, s[14:15] bias, s16 n, s17 k, s[18:22]
//   planes, s23 bytes of a row of halves, s28 first token, s29 T, s30 wave, s31 first row of the workgroup, s33 of the
//   wave, s24, s26, s34, s[36:37], s38, s66 scratch, s[40:63] addresses of four rows in planes 0, 1, 2
//   (weights.inc), s64 loop count, s68, s69 weights.inc, s70 row, s[72:77] its addresses, s78, s79 scratch, s[80:85] addresses of the wave's first row,
//   s[86:87] counts, then s86 the scale
//   v0 lane, v2, v3, v94, v95 offsets in planes, v4 to v7, v90 to v93 weights.inc; v[8:71] sums [token tile][row tile],
//   v[72:87] tokens, v[96:239] raw weights, v[240:247] rows of a tile, v[248:251] byte offsets of tokens' halves, v252
//   of the lane in LDS, to write, v253 to read, v254 weights.inc
.include "zrt.inc"
.set RAW, 96
.set TURN, 254
.include "weights.inc"

.set ROW_BYTES, 272                     // of 128 halves in LDS: rows begin in different banks
.set BUFFER_BYTES, 64 * ROW_BYTES
.set q8_0_SIZE, 9                       // registers of a row's raw weights
.set q4_0_SIZE, 5
.set mxfp4_SIZE, 5
.set q4_k_SIZE, 6
.set q5_k_SIZE, 7
.set q6_k_SIZE, 8
.set f32_SIZE, 4
.set f16_SIZE, 2
.set bf16_SIZE, 2

// --- the wave's 16 rows, four at a time. Rows past the last are the last again: converted, never stored.

.macro first_rows type
    s_mov_b64 s[72:73], s[80:81]
    .if \type\()_SCALES
    s_mov_b64 s[74:75], s[82:83]
    .endif
    .if \type\()_HIGH
    s_mov_b64 s[76:77], s[84:85]
    .endif
    s_mov_b32 s70, s33
.endm

// s[40:63] = addresses of the next four rows
.macro next_rows type
    .irp r, 0, 1, 2, 3
    s_mov_b64 s[40+2*\r:41+2*\r], s[72:73]
    .if \type\()_SCALES
    s_mov_b64 s[48+2*\r:49+2*\r], s[74:75]
    .endif
    .if \type\()_HIGH
    s_mov_b64 s[56+2*\r:57+2*\r], s[76:77]
    .endif
    s_add_co_i32 s70, s70, 1
    s_cmp_lt_u32 s70, s16
    s_cselect_b32 s78, s18, 0
    s_add_nc_u64 s[72:73], s[72:73], s[78:79]
    .if \type\()_SCALES
    s_cselect_b32 s78, s20, 0
    s_add_nc_u64 s[74:75], s[74:75], s[78:79]
    .endif
    .if \type\()_HIGH
    s_cselect_b32 s78, s22, 0
    s_add_nc_u64 s[76:77], s[76:77], s[78:79]
    .endif
    .endr
.endm

// The macro `part` of all rows' raw weights
.macro rows_in_four type, part
    .set RAW, 96
    .rept 4
    .irp r, 0, 1, 2, 3
    \type\()_\part \r
    .endr
    .set RAW, RAW + 4 * \type\()_SIZE
    .endr
.endm

.macro load_rows type, part
    .set RAW, 96
    first_rows \type
    .rept 4
    next_rows \type
    .irp r, 0, 1, 2, 3
    \type\()_\part \r
    .endr
    .set RAW, RAW + 4 * \type\()_SIZE
    .endr
.endm

// --- types as in the file: the lane's four weights of a step; rows of 4 * n elements

.macro f32_part r
    .set Q, RAW + 4 * \r
    global_load_b128 v[Q:Q+3], v2, s[40+2*\r:41+2*\r]
.endm
.macro f16_part r
    .set Q, RAW + 2 * \r
    global_load_b64 v[Q:Q+1], v2, s[40+2*\r:41+2*\r]
.endm
.macro bf16_part r
    f16_part \r
.endm
.macro f32_step r, step
    .set Q, RAW + 4 * \r
    v_dual_mov_b32 v92, v[Q] :: v_dual_mov_b32 v93, v[Q+1]
    v_mov_b32 v4, v[Q+2]
    v_mov_b32 v5, v[Q+3]
.endm
.macro bf16_step r, step
    .set Q, RAW + 2 * \r
    v_lshlrev_b32 v92, 16, v[Q]
    v_and_b32 v93, 0xffff0000, v[Q]
    v_lshlrev_b32 v4, 16, v[Q+1]
    v_and_b32 v5, 0xffff0000, v[Q+1]
.endm

// --- a step

.macro store_rows type, step, buffer
    .set RAW, 96
    .set TO, BUFFER_BYTES * \buffer
    .rept 4
    .irp r, 0, 1, 2, 3
    .ifc \type, f16
    ds_store_b64 v252, v[RAW+2*\r:RAW+2*\r+1] offset:TO
    .else
    \type\()_step \r, \step
    v_cvt_f16_f32 v92, v92
    v_cvt_f16_f32 v93, v93
    v_cvt_f16_f32 v4, v4
    v_cvt_f16_f32 v5, v5
    v_pack_b32_f16 v92, v92, v93
    v_pack_b32_f16 v93, v4, v5
    ds_store_b64 v252, v[92:93] offset:TO
    .endif
    .set TO, TO + ROW_BYTES
    .endr
    .set RAW, RAW + 4 * \type\()_SIZE
    .endr
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait 0xffff
.endm

.macro multiply buffer
    .irp tile, 0, 1, 2, 3, 4, 5, 6, 7
    ds_load_b128 v[240:243], v253 offset:BUFFER_BYTES*\buffer+32*\tile
    ds_load_b128 v[244:247], v253 offset:BUFFER_BYTES*\buffer+16*ROW_BYTES+32*\tile
    .irp i, 0, 1, 2, 3
    global_load_b128 v[72+4*\i:75+4*\i], v[248+\i], s[4:5] offset:32*\tile
    .endr
    s_wait_dscnt 0x0
    .irp i, 0, 1, 2, 3
    s_wait_loadcnt 3 - \i
    .irp m, 0, 1
    .set SUM, 8 + 16 * \i + 8 * \m
    v_wmma_f32_16x16x16_f16 v[SUM:SUM+7], v[240+4*\m:243+4*\m], v[72+4*\i:75+4*\i], v[SUM:SUM+7]
    .endr
    .endr
    .endr
    s_add_nc_u64 s[4:5], s[4:5], 0x100
.endm

.macro step type, step
    store_rows \type, \step, (\step&1)
    multiply (\step&1)
.endm

.macro zrt_of_weight type
zrt_kernel name=matmul_wmma_\type, buffers=7, constants=8, threads=128, vgprs=255, sgprs=88, lds=2*BUFFER_BYTES
    s_load_b256 s[4:11], s[0:1], 0x0
    s_load_b128 s[12:15], s[0:1], 0x20
    s_load_b64 s[86:87], s[0:1], 0x30
    s_load_b256 s[16:23], s[0:1], 0x38
    v_and_b32 v0, 31, v0
    s_bfe_u32 s30, ttmp8, 0x50019       // wave in the workgroup
    s_and_b32 s31, ttmp7, 0xffff
    s_lshl_b32 s31, s31, 6
    s_lshl_b32 s28, ttmp9, 7
    s_mov_b32 s79, 0
    s_wait_kmcnt 0x0
    s_load_b32 s29, s[86:87], 0x0
    s_wait_kmcnt 0x0
    s_cmp_ge_u32 s28, s29
    s_cbranch_scc1 .Lend
    s_lshl_b32 s33, s30, 4
    s_add_co_i32 s33, s33, s31
    s_add_co_i32 s36, s16, -1
    s_min_u32 s33, s33, s36
    weights_plane 80, 0, s33, s18
    .if \type\()_SCALES
    weights_plane 82, s19, s33, s20
    .endif
    .if \type\()_HIGH
    weights_plane 84, s21, s33, s22
    .endif
    v_and_b32 v1, 15, v0
    v_lshrrev_b32 v4, 4, v0
    v_lshlrev_b32 v4, 4, v4             // bytes of the lane's half of a tile
    s_lshr_b32 s36, s30, 1
    s_lshl_b32 s36, s36, 6
    s_add_co_i32 s36, s36, s28
    s_add_co_i32 s37, s29, -1
    .irp i, 0, 1, 2, 3
    v_add_nc_u32 v5, s36, v1
    v_add_nc_u32 v5, 16 * \i, v5
    v_min_u32 v5, s37, v5               // tokens past the last are the last again: computed, never stored
    v_mul_lo_u32 v5, v5, s23
    v_add_nc_u32 v[248+\i], v5, v4
    .endr
    s_mul_i32 s38, s30, 16 * ROW_BYTES
    v_lshl_add_u32 v252, v0, 3, s38
    s_and_b32 s34, s30, 1
    s_mul_i32 s34, s34, 32 * ROW_BYTES
    v_mul_u32_u24 v5, ROW_BYTES, v1
    v_add3_u32 v253, v5, v4, s34
    .set V, 8
    .rept 32
    v_dual_mov_b32 v[V], 0 :: v_dual_mov_b32 v[V+1], 0
    .set V, V + 2
    .endr
.if \type\()_QUANTS
    \type\()_begin
    s_lshr_b32 s64, s17, 10
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lgroup:
    load_rows \type, load
    weights_next \type
    s_wait_loadcnt 0x0
    rows_in_four \type, prepare
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7
    step \type, \number
    .endr
    s_sub_co_i32 s64, s64, 1
    s_cmp_lg_u32 s64, 0
    s_cbranch_scc1 .Lgroup
.Ltail:
    s_and_b32 s64, s17, 0x3ff
    s_cbranch_scc0 .Lstore
    s_add_co_i32 s64, s64, 0xff
    s_lshr_b32 s64, s64, 8
    load_rows \type, tail_begin
    \type\()_tail_offset
    s_wait_loadcnt 0x0
    rows_in_four \type, prepare
.Lpair:
    load_rows \type, tail_load
    s_wait_loadcnt 0x0
    step \type, 0
    step \type, 1
    rows_in_four \type, turn
    \type\()_tail_next
    s_sub_co_i32 s64, s64, 1
    s_cmp_lg_u32 s64, 0
    s_cbranch_scc1 .Lpair
.else
    .set SHIFT, 1
    .ifc \type, f32
    .set SHIFT, 2
    .endif
    v_lshlrev_b32 v2, 2 + SHIFT, v0
    v_lshlrev_b32 v3, 2, v0             // element
    s_add_co_i32 s64, s17, 0xff
    s_lshr_b32 s64, s64, 8
.Lsteps:
    .irp number, 0, 1
    .set V, 96
    .rept 8 * \type\()_SIZE
    v_dual_mov_b32 v[V], 0 :: v_dual_mov_b32 v[V+1], 0
    .set V, V + 2
    .endr
    v_cmpx_gt_u32 s17, v3
    load_rows \type, part
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v2, 0x80 << SHIFT, v2
    v_add_nc_u32 v3, 0x80, v3
    s_wait_loadcnt 0x0
    step \type, \number
    .endr
    s_sub_co_i32 s64, s64, 1
    s_cmp_lg_u32 s64, 0
    s_cbranch_scc1 .Lsteps
.endif
.Lstore:
    s_lshr_b32 s24, s30, 1
    s_lshl_b32 s24, s24, 6
    s_add_co_i32 s24, s24, s28
    v_and_b32 v1, 15, v0
    v_add_nc_u32 v1, s24, v1            // token
    s_and_b32 s26, s30, 1
    s_lshl_b32 s26, s26, 5
    s_add_co_i32 s26, s26, s31
    v_lshrrev_b32 v4, 4, v0
    v_lshl_add_u32 v4, v4, 3, s26       // row
    s_mov_b32 s86, 1.0
    s_cmp_eq_u64 s[12:13], 0
    s_cbranch_scc1 .Lunscaled
    s_load_b32 s86, s[12:13], 0x0
    s_wait_kmcnt 0x0
.Lunscaled:
    .irp m, 0, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[72+8*\m+\r], 0x80000000 // -0 changes no sum
    .endr
    .endr
    s_cmp_eq_u64 s[14:15], 0
    s_cbranch_scc1 .Lunbiased
    v_lshlrev_b32 v5, 2, v4
    .irp m, 0, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_nc_u32 v7, 16 * \m + \r, v4
    v_cmpx_gt_u32 s16, v7
    global_load_b32 v[72+8*\m+\r], v5, s[14:15] offset:64*\m+4*\r
    s_mov_b32 exec_lo, -1
    .endr
    .endr
.Lunbiased:
    .irp i, 0, 1, 2, 3
    v_cmpx_gt_u32 s29, v1
    v_lshlrev_b32 v5, 2, v1
    global_load_b32 v6, v5, s[10:11]
    v_mul_lo_u32 v5, v1, s16
    v_add_lshl_u32 v5, v5, v4, 2
    s_mov_b32 s66, exec_lo
    s_wait_loadcnt 0x0
    .irp m, 0, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    .set SUM, 8 + 16 * \i + 8 * \m + \r
    v_add_nc_u32 v7, 16 * \m + \r, v4
    v_mul_f32 v[SUM], v[SUM], v6
    v_mul_f32 v[SUM], s86, v[SUM]
    v_add_f32 v[SUM], v[SUM], v[72+8*\m+\r]
    v_cmpx_gt_u32 s16, v7
    global_store_b32 v5, v[SUM], s[8:9] offset:64*\m+4*\r
    s_mov_b32 exec_lo, s66
    .endr
    .endr
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, 16, v1
    .endr
.Lend:
    s_endpgm
zrt_end
.endm
