// Projections of many tokens in wmma-f16 and wmma-bf16 (docs/wmma-f16.md) on the matrix unit: one text, made once a type
// of halves and of weights.
// A workgroup of four waves computes 64 rows of 128 tokens. Each step of 128 elements of k, every wave converts 16
// rows to halves in LDS; after a barrier each multiplies 32 rows by 64 tokens, eight matrix instructions for 16
// elements of k. LDS has two buffers, so one barrier a step is enough: a buffer is written again after the barrier that
// follows its last read.
//
// grid: x blocks of 128 tokens of the capacity, y blocks of 64 rows
// buffers: rows of x (round_rows.s); weight, packed as repack.py says; y f32 [T][n]; scale f32 (one), bias f32 (n): 0 where
//          absent; counts i32, the first one T
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, bytes a row of x
//
//   s[4:5] halves, at the step; s[6:7] weight, s[8:9] y, s[10:11] scale, s[12:13] bias, s[14:15] counts, s16 n, s17 k, s[18:22]
//   planes, s23 bytes of a row of x, s28 first token, s29 T, s30 wave, s31 first row of the workgroup, s33 of the
//   wave, s24, s26, s34, s[36:37], s38, s66 scratch, s[40:63] addresses of four rows in planes 0, 1, 2
//   (weights.inc), s64 loop count, s68, s69 weights.inc, s70 row, s[72:77] its addresses, s78, s79 scratch, s[80:85] addresses of the wave's first row,
//   s86 the scale
//   v0 lane, v2, v3, v94, v95 offsets in planes, v4 to v7, v90 to v93 weights.inc; v[8:71] sums [token tile][row tile],
//   v[72:87] tokens, v[96:239] raw weights, v[240:247] rows of a tile, v[248:251] byte offsets of tokens' halves, v252
//   of the lane in LDS, to write, v253 to read, v254 weights.inc
.include "zrt.inc"
.set RAW, 96
.set TURN, 254
.include "wmma_rows.inc"

.set BUFFER_BYTES, 64 * ROW_BYTES

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
    multiply_halves v[SUM:SUM+7], v[240+4*\m:243+4*\m], v[72+4*\i:75+4*\i]
    .endr
    .endr
    .endr
    s_add_nc_u64 s[4:5], s[4:5], 0x100
.endm

.macro step type, step
    store_rows \type, \step, 252, BUFFER_BYTES*(\step&1)
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait 0xffff
    multiply (\step&1)
.endm

.macro zrt_of_halves_weight halves, type
zrt_kernel name=matmul_wmma_\halves\()_\type, buffers=6, constants=8, threads=128, vgprs=255, sgprs=87, lds=2*BUFFER_BYTES
    s_load_b256 s[4:11], s[0:1], 0x0
    s_load_b128 s[12:15], s[0:1], 0x20
    s_load_b256 s[16:23], s[0:1], 0x30
    v_and_b32 v0, 31, v0
    s_bfe_u32 s30, ttmp8, 0x50019       // wave in the workgroup
    s_and_b32 s31, ttmp7, 0xffff
    s_lshl_b32 s31, s31, 6
    s_lshl_b32 s28, ttmp9, 7
    s_mov_b32 s79, 0
    s_wait_kmcnt 0x0
    s_load_b32 s29, s[14:15], 0x0
    s_wait_kmcnt 0x0
    s_cmp_ge_u32 s28, s29
    s_cbranch_scc1 .Lend
    s_lshl_b32 s33, s30, 4
    s_add_co_i32 s33, s33, s31
    s_add_co_i32 s36, s16, -1
    s_min_u32 s33, s33, s36
    first_planes \type, s33
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
    clear_sums 64
    each_step \type
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
    s_cmp_eq_u64 s[10:11], 0
    s_cbranch_scc1 .Lunscaled
    s_load_b32 s86, s[10:11], 0x0
    s_wait_kmcnt 0x0
.Lunscaled:
    .irp m, 0, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[72+8*\m+\r], 0x80000000 // -0 changes no sum
    .endr
    .endr
    s_cmp_eq_u64 s[12:13], 0
    s_cbranch_scc1 .Lunbiased
    v_lshlrev_b32 v5, 2, v4
    .irp m, 0, 1
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_nc_u32 v7, 16 * \m + \r, v4
    v_cmpx_gt_u32 s16, v7
    global_load_b32 v[72+8*\m+\r], v5, s[12:13] offset:64*\m+4*\r
    s_mov_b32 exec_lo, -1
    .endr
    .endr
.Lunbiased:
    .irp i, 0, 1, 2, 3
    v_cmpx_gt_u32 s29, v1
    v_mul_lo_u32 v5, v1, s23
    global_load_b32 v6, v5, s[4:5]      // the factor: all halves are behind s[4:5]
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
