// Rows of activations as halves for matmul_wmma_*: scaled by a power of two, so that the largest element's exponent is
// 14, then rounded (docs/wmma-f16.md): one text, made once a type of halves. A wave rounds one row.
//
// grid: x rows of a token, y tokens
// buffers: x f32 [T][rows][k]; to [T][rows]: halves [m], +0 from k on, then its factor f32 and 12 unused bytes. x is about the
//          halves times the factor.
// constants: k, a multiple of 4; m, a multiple of 256; rows; 0
//
//   s[4:7] buffers, s10 k, s11 m, s[12:13] first byte of the row of x, s[14:15] of its halves, s16 elements done, s17 scratch,
//   s18 row, s19 offset of the factor
//   v0 lane, v1 byte offset in x, v2 element, v3 byte offset in halves, v[4:7] x, v8 largest bits, v9 scale, v10 factor, v11, v12 scratch
.include "zrt.inc"
.include "halves.inc"

.macro load_x
    v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 0
    v_dual_mov_b32 v6, 0 :: v_dual_mov_b32 v7, 0
    v_cmpx_gt_u32 s10, v2
    global_load_b128 v[4:7], v1, s[12:13]
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, 0x200, v1
    v_add_nc_u32 v2, 0x80, v2
    s_wait_loadcnt 0x0
.endm

.macro first_elements
    v_lshlrev_b32 v1, 4, v0
    v_lshlrev_b32 v2, 2, v0
    s_mov_b32 s16, 0
.endm

.macro zrt_of_halves halves
zrt_kernel name=round_rows_\halves, buffers=2, constants=4, threads=32, vgprs=16, sgprs=20
    s_load_b128 s[4:7], s[0:1], 0x0
    s_load_b64 s[10:11], s[0:1], 0x10
    s_load_b32 s12, s[0:1], 0x18
    v_and_b32 v0, 31, v0
    s_and_b32 s18, ttmp7, 0xffff
    s_wait_kmcnt 0x0
    s_mul_i32 s18, s18, s12
    s_add_co_i32 s18, s18, ttmp9        // the row
    s_lshl_b32 s17, s10, 2
    s_mul_hi_u32 s13, s18, s17
    s_mul_i32 s12, s18, s17
    s_add_nc_u64 s[12:13], s[4:5], s[12:13]
    s_lshl_b32 s19, s11, 1              // where the factor is
    s_add_co_i32 s17, s19, 16
    s_mul_hi_u32 s15, s18, s17
    s_mul_i32 s14, s18, s17
    s_add_nc_u64 s[14:15], s[6:7], s[14:15]
    v_mov_b32 v8, 0
    first_elements
.Llargest:
    load_x
    v_and_b32 v4, 0x7fffffff, v4
    v_and_b32 v5, 0x7fffffff, v5
    v_and_b32 v6, 0x7fffffff, v6
    v_and_b32 v7, 0x7fffffff, v7
    v_max3_u32 v8, v8, v4, v5
    v_max3_u32 v8, v8, v6, v7
    s_add_co_i32 s16, s16, 0x80
    s_cmp_lt_u32 s16, s10
    s_cbranch_scc1 .Llargest
    .irp distance, 1, 2, 4, 8
    v_max_u32_dpp v8, v8, v8 row_xmask:\distance row_mask:0xf bank_mask:0xf
    .endr
    v_permlanex16_b32 v4, v8, 0, 0
    v_max_u32 v8, v8, v4
    v_lshrrev_b32 v8, 23, v8
    v_max_u32 v8, 27, v8
    v_min_u32 v8, 0xfe, v8
    v_sub_nc_u32 v9, 0x10c, v8          // 254 + 14
    v_lshlrev_b32 v9, 23, v9
    v_subrev_nc_u32 v10, 14, v8
    v_lshlrev_b32 v10, 23, v10
    v_lshlrev_b32 v3, 3, v0
    first_elements
.Lround:
    load_x
    .irp i, 4, 5, 6, 7
    v_mul_f32 v\i, v9, v\i
    .endr
    to_halves 4, 5, 6, 7, 11, 12
    global_store_b64 v3, v[4:5], s[14:15]
    v_add_nc_u32 v3, 0x100, v3
    s_add_co_i32 s16, s16, 0x80
    s_cmp_lt_u32 s16, s11
    s_cbranch_scc1 .Lround
    s_mov_b32 exec_lo, 1
    v_mov_b32 v1, s19
    global_store_b32 v1, v10, s[14:15]
    s_endpgm
zrt_end
.endm
