// LAYER_NORM: y = ((x - mean) * r) * w + b, r = 1 / sqrt(dot(x - mean, x - mean) / K + eps), f32, one wave a row.
// Buffers: x, weight, bias or 0, y. Constants: columns, eps. Grid: 1, rows.
.include "zrt.inc"
.include "arith.inc"

// Elements v[d:d+3] of the lane in the last, partial block of 128, +0 where the row has ended.
.macro tail_load
    .irp d, 8, 9, 10, 11
    v_mov_b32 v\d, 0
    .endr
    .irp d, 8, 9, 10, 11
    v_add_nc_u32 v12, 4 * (\d - 8), v1
    v_cmp_gt_u32 vcc_lo, s16, v12
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    global_load_b32 v\d, v12, s[4:5]
    s_mov_b32 exec_lo, -1
    .endr
    s_wait_loadcnt 0
.endm

// v3 = the canonical sum over the row of what `take d` makes of element v[d], / K. `tail_take d` is the same for
// elements beyond the last, which must give +0.
.macro row_mean take, tail_take
    .irp i, 4, 5, 6, 7
    v_mov_b32 v\i, 0
    .endr
    v_lshlrev_b32 v1, 4, v0
    s_mov_b32 s14, 0
.Lblock\@:
    s_cmp_lt_u32 s14, s18
    s_cbranch_scc0 .Ltail\@
    global_load_b128 v[8:11], v1, s[4:5]
    s_wait_loadcnt 0
    .irp d, 8, 9, 10, 11
    \take \d
    .endr
    v_add_nc_u32 v1, 0x200, v1
    s_add_co_u32 s14, s14, 0x200
    s_branch .Lblock\@
.Ltail\@:
    s_cmp_eq_u32 s14, s16
    s_cbranch_scc1 .Lsum\@
    tail_load
    .irp d, 8, 9, 10, 11
    \tail_take \d
    .endr
.Lsum\@:
    f32_sum4 v3, v4, v5, v6, v7
    f32_butterfly v3, v4
    v_cvt_f32_u32 v4, s12
    f32_div v3, v3, v4, v5, v6, v7, v8, v9, v10
.endm

.macro take_element d
    v_add_f32 v[\d - 4], v[\d - 4], v[\d]
.endm

.macro take_square d
    v_sub_f32 v[\d], v[\d], v2
    v_mul_f32 v[\d], v[\d], v[\d]
    v_add_f32 v[\d - 4], v[\d - 4], v[\d]
.endm

.macro tail_take_square d
    v_sub_f32 v[\d], v[\d], v2
    v_mul_f32 v[\d], v[\d], v[\d]
    v_add_nc_u32 v12, 4 * (\d - 8), v1
    v_cmp_gt_u32 vcc_lo, s16, v12
    wait_vcc
    v_cndmask_b32 v[\d], 0, v[\d], vcc_lo
    v_add_f32 v[\d - 4], v[\d - 4], v[\d]
.endm

zrt_kernel name=layer_norm, buffers=4, constants=2, threads=32, vgprs=24, sgprs=24
    s_clause 1
    s_load_b256 s[4:11], s[0:1], 0                  // x, weight, bias, y
    s_load_b64 s[12:13], s[0:1], 32                 // columns, eps
    s_and_b32 s2, ttmp7, 0xffff
    s_wait_kmcnt 0
    s_lshl_b32 s16, s12, 2                          // bytes of a row
    s_and_b32 s18, s16, 0xfffffe00                  // of whole blocks of 128 elements
    s_mul_hi_u32 s3, s2, s16
    s_mul_i32 s2, s2, s16
    s_add_nc_u64 s[4:5], s[4:5], s[2:3]
    s_add_nc_u64 s[10:11], s[10:11], s[2:3]
    row_mean take_element, take_element
    v_mov_b32 v2, v3                                // mean
    row_mean take_square, tail_take_square
    v_add_f32 v3, s13, v3
    f32_rsqrt v3, v3, v5, v6, v7, v8
    v_lshlrev_b32 v1, 2, v0
.Lapply:
    v_cmp_gt_u32 vcc_lo, s16, v1
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    global_load_b32 v8, v1, s[4:5]
    global_load_b32 v9, v1, s[6:7]
    s_cmp_eq_u64 s[8:9], 0
    s_cbranch_scc1 .Lunbiased
    global_load_b32 v10, v1, s[8:9]
    s_wait_loadcnt 0
    v_sub_f32 v8, v8, v2
    v_mul_f32 v8, v8, v3
    v_mul_f32 v8, v8, v9
    v_add_f32 v8, v8, v10
    s_branch .Lstore
.Lunbiased:
    s_wait_loadcnt 0
    v_sub_f32 v8, v8, v2
    v_mul_f32 v8, v8, v3
    v_mul_f32 v8, v8, v9
.Lstore:
    global_store_b32 v1, v8, s[10:11]
    v_add_nc_u32 v1, 0x80, v1
    s_branch .Lapply
.Lend:
    s_endpgm
zrt_end
