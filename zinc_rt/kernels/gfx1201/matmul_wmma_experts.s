// Projections of the selected experts in wmma-f16 and wmma-bf16 (docs/wmma-f16.md) on the matrix unit: one text, made once a
// type of halves and of weights.
// A workgroup of four waves computes 64 rows of one expert for a tile of up to 32 of its pairs (sort_experts.s); a wave
// computes 16 rows. Each step of 128 elements of k, it converts them to halves in LDS of its own, from where it reads them
// as the matrix unit has them: two matrix instructions for 16 elements of k. Waves do not wait for each other.
//
// grid: x slots of tiles, y blocks of 64 rows
// buffers: rows of x (round_rows.s), one a token or one a pair; weight, packed as repack.py says, an expert's n rows after the other;
//          y f32 [pairs][n]; routes (sort_experts.s); scale f32 (experts), bias f32 (experts, n): 0 where absent
// constants: n, k, bytes a row of plane 0, then offset and bytes a row of planes 1 and 2, bytes a row of x, ceil(2^31 / pairs to
//            a row of x), bytes of the slots
//
//   s[4:5] x, at the step; s[6:7] weight, s[8:9] y, s[10:11] pairs, s[12:13] scale, s[14:15] bias, s16 n, s17 k, s[18:22]
//   planes, s23 bytes of a row of x, s24 expert, s[26:27] addresses of its bias, s28 pairs of the tile, s30 wave, s33 first row of
//   the wave, s34, s[36:38], s65, s66 scratch, s[40:63] addresses of four rows (weights.inc), s64 loop count, s68 to s78 wmma_rows.inc,
//   s79 0, s[80:85] addresses of the wave's first row, s86 scale
//   v0 lane, v1 scratch, v2, v3, v94, v95 offsets in planes, v4 to v7, v90 to v93 weights.inc, then rows of a tile; v[8:23] sums
//   [token tile], v[24:79] halves of seven tiles [token tile], v80 of the lane in LDS, to write, v81 to read, v82
//   weights.inc, v83, v84 byte offsets of the pairs' halves, v85, v86 of their results, v[96:239] raw weights
.include "zrt.inc"
.set RAW, 96
.set TURN, 82
.include "wmma_rows.inc"

.set AHEAD, 7                           // tiles of 16 elements whose halves are loaded before the rows are converted

.macro load_pairs tile
    .set X, 24 + 8 * ((\tile) % AHEAD)
    global_load_b128 v[X:X+3], v83, s[4:5] offset:32*(\tile)
    global_load_b128 v[X+4:X+7], v84, s[4:5] offset:32*(\tile)
.endm

// v[row:row+3] = the lane's halves of the rows
.macro read_rows row, tile
    ds_load_b128 v[\row:\row+3], v81 offset:32*(\tile)
.endm

.macro multiply tile, row
    .set X, 24 + 8 * ((\tile) % AHEAD)
    multiply_halves v[8:15], v[\row:\row+3], v[X:X+3]
    multiply_halves v[16:23], v[\row:\row+3], v[X+4:X+7]
.endm

.macro step type, step
    .irp tile, 0, 1, 2, 3, 4, 5, 6
    load_pairs \tile
    .endr
    store_rows \type, \step, 80, 0
    s_wait_dscnt 0x0
    read_rows 4, 0
    .irp tile, 0, 2, 4, 6
    read_rows 90, \tile+1
    s_wait_dscnt 0x1
    .if \tile == 0
    s_wait_loadcnt 2 * AHEAD - 2
    .else
    s_wait_loadcnt 2 * AHEAD - 2 * \tile
    .endif
    multiply \tile, 4
    .if \tile == 0
    load_pairs 7
    .endif
    .if \tile < 6
    read_rows 4, \tile+2
    s_wait_dscnt 0x1
    .else
    s_wait_dscnt 0x0
    .endif
    s_wait_loadcnt 2 * AHEAD - 2 * (\tile + 1)
    multiply \tile+1, 90
    .endr
    s_add_nc_u64 s[4:5], s[4:5], 0x100
.endm

.macro zrt_of_halves_weight halves, type
zrt_kernel name=matmul_wmma_experts_\halves\()_\type, buffers=6, constants=10, threads=128, vgprs=96+16*\type\()_SIZE, sgprs=87, lds=64*ROW_BYTES
    s_load_b512 s[4:19], s[0:1], 0x0
    s_load_b256 s[40:47], s[0:1], 0x30
    s_load_b64 s[48:49], s[0:1], 0x50
    v_and_b32 v0, 31, v0
    s_bfe_u32 s30, ttmp8, 0x50019       // wave in the workgroup
    s_and_b32 s33, ttmp7, 0xffff
    s_lshl_b32 s33, s33, 6
    s_lshl_b32 s34, s30, 4
    s_add_co_i32 s33, s33, s34
    s_lshl_b32 s36, ttmp9, 4
    s_wait_kmcnt 0x0
    s_mov_b64 s[16:17], s[40:41]
    s_mov_b64 s[18:19], s[42:43]
    s_mov_b64 s[20:21], s[44:45]
    s_mov_b64 s[22:23], s[46:47]
    s_load_b128 s[24:27], s[10:11], s36
    s_cmp_ge_u32 s33, s16
    s_cbranch_scc1 .Lend
    s_mov_b32 s79, 0
    s_mov_b32 s37, 0
    s_wait_kmcnt 0x0
    s_mov_b32 s28, s26
    s_cmp_eq_u32 s28, 0
    s_cbranch_scc1 .Lend
    s_lshl_b32 s36, s25, 2
    s_add_co_i32 s36, s36, s49
    s_add_nc_u64 s[10:11], s[10:11], s[36:37]
    v_and_b32 v1, 15, v0
    s_add_co_i32 s38, s28, -1
    .irp i, 0, 1
    v_add_nc_u32 v[85+\i], 16 * \i, v1
    v_min_u32 v[85+\i], s38, v[85+\i]   // pairs past the last are the last again: computed, never stored
    v_lshlrev_b32 v[85+\i], 2, v[85+\i]
    global_load_b32 v[85+\i], v[85+\i], s[10:11]
    .endr
    s_mul_i32 s34, s24, s16
    s_add_co_i32 s34, s34, s33          // row in the weight
    first_planes \type, s34
    v_lshrrev_b32 v4, 4, v0
    v_lshlrev_b32 v4, 4, v4             // bytes of the lane's half of a tile
    s_mul_i32 s66, s30, 16 * ROW_BYTES
    v_lshl_add_u32 v80, v0, 3, s66
    v_mul_u32_u24 v5, ROW_BYTES, v1
    v_add3_u32 v81, v5, v4, s66
    s_wait_loadcnt 0x0
    .irp i, 0, 1
    v_lshlrev_b32 v5, 1, v[85+\i]
    v_mul_hi_u32 v5, v5, s48            // row of x
    v_mul_lo_u32 v5, v5, s23
    v_add_nc_u32 v[83+\i], v5, v4
    v_mul_lo_u32 v[85+\i], v[85+\i], s16
    v_add_lshl_u32 v[85+\i], v[85+\i], s33, 2
    .endr
    clear_sums 16
    each_step \type
.Lstore:
    v_and_b32 v1, 15, v0
    v_lshrrev_b32 v2, 4, v0
    v_lshlrev_b32 v3, 4, v2
    v_lshl_add_u32 v4, v2, 3, s33       // row
    v_lshlrev_b32 v5, 5, v2             // its bytes beyond the wave's first row
    s_mov_b32 s86, 1.0
    s_cmp_eq_u64 s[12:13], 0
    s_cbranch_scc1 .Lunscaled
    s_lshl_b32 s36, s24, 2
    s_load_b32 s86, s[12:13], s36
    s_wait_kmcnt 0x0
.Lunscaled:
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[24+\r], 0x80000000      // -0 changes no sum
    .endr
    s_cmp_eq_u64 s[14:15], 0
    s_cbranch_scc1 .Lunbiased
    s_mov_b32 s37, 0
    s_mul_i32 s36, s24, s16
    s_add_co_i32 s36, s36, s33
    s_lshl_b64 s[36:37], s[36:37], 2
    s_add_nc_u64 s[14:15], s[14:15], s[36:37]
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    v_add_nc_u32 v7, \r, v4
    v_cmpx_gt_u32 s16, v7
    global_load_b32 v[24+\r], v5, s[14:15] offset:4*\r
    s_mov_b32 exec_lo, -1
    .endr
.Lunbiased:
    .irp i, 0, 1
    v_sub_nc_u32 v6, v[83+\i], v3
    global_load_b32 v[32+\i], v6, s[4:5] // the factor: all halves are behind s[4:5]
    .endr
    s_wait_loadcnt 0x0
    .irp i, 0, 1
    v_add_nc_u32 v6, v[85+\i], v5
    v_cmpx_gt_u32 s28, v1
    s_mov_b32 s65, exec_lo
    .irp r, 0, 1, 2, 3, 4, 5, 6, 7
    .set SUM, 8 + 8 * \i + \r
    v_add_nc_u32 v7, \r, v4
    v_mul_f32 v[SUM], v[SUM], v[32+\i]
    v_mul_f32 v[SUM], s86, v[SUM]
    v_add_f32 v[SUM], v[SUM], v[24+\r]
    v_cmpx_gt_u32 s16, v7
    global_store_b32 v6, v[SUM], s[8:9] offset:4*\r
    s_mov_b32 exec_lo, s65
    .endr
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, 16, v1
    .endr
.Lend:
    s_endpgm
zrt_end
.endm
