// As delta_unit, of heads of any width: 128 elements at a time, four neighbours a lane, read once for the sum and once
// for the result.
//
// buffers: conv_out f32[T][row]; unit f32[T][heads][d]
// constants: d; row; heads, q's and k's together; eps f32
.include "zrt.inc"
.include "arith.inc"
.include "any_width.inc"
.set X, 4
.set SUM, 8
zrt_kernel name=delta_unit_any, buffers=2, constants=4, threads=32, vgprs=24, sgprs=40

    s_load_b256 s[4:11], s[0:1], 0x0                // conv_out, unit, d, row, heads, eps
    v_and_b32 v0, 31, v0
    v_lshlrev_b32 v2, 4, v0
    s_and_b32 s12, ttmp7, 0xffff                    // the token
    s_wait_kmcnt 0x0
    s_mul_i32 s16, ttmp9, s8                        // the head's first column
    s_mov_b32 s17, 0
    s_mul_i32 s14, s12, s9
    s_mul_hi_u32 s15, s12, s9
    s_add_nc_u64 s[14:15], s[14:15], s[16:17]
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[4:5], s[4:5], s[14:15]
    s_mul_i32 s18, s8, s10
    s_mul_i32 s14, s12, s18
    s_mul_hi_u32 s15, s12, s18
    s_add_nc_u64 s[14:15], s[14:15], s[16:17]
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[6:7], s[6:7], s[14:15]
    .irp e, 0, 1, 2, 3
    v_mov_b32 v[SUM + \e], 0
    .endr
    v_mov_b32 v1, v2
    s_mov_b32 s20, s8
.Lsquares:
    element_masks 24, s20, 28
    elements_load X, 1, 4, 24
    s_wait_loadcnt 0x0
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[24 + \e]
    v_mul_f32 v3, v[X + \e], v[X + \e]
    v_add_f32 v[SUM + \e], v[SUM + \e], v3
    .endr
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v1, 0x200, v1
    s_sub_co_i32 s20, s20, 128
    s_cmp_gt_i32 s20, 0
    s_cbranch_scc1 .Lsquares
    f32_sum4 v12, v[SUM], v[SUM + 1], v[SUM + 2], v[SUM + 3]
    f32_butterfly v12, v13
    v_add_f32 v12, s11, v12
    f32_rsqrt v12, v12, v13, v14, v15, v16
    s_mov_b32 s20, s8
.Lscale:
    element_masks 24, s20, 28
    elements_load X, 2, 4, 24
    s_wait_loadcnt 0x0
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[24 + \e]
    v_mul_f32 v[X + \e], v[X + \e], v12
    .endr
    elements_store X, 2, 6, 24
    v_add_nc_u32 v2, 0x200, v2
    s_sub_co_i32 s20, s20, 128
    s_cmp_gt_i32 s20, 0
    s_cbranch_scc1 .Lscale
    s_endpgm
zrt_end
