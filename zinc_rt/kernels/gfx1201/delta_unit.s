// The q and k heads of the gated delta rule at unit length: x * rsqrt(dot(x, x) + eps). One wave a head and token.
//
// buffers: conv_out f32[T][row]; unit f32[T][heads][d]
// constants: d, a multiple of 4, at most 128; row; heads, q's and k's together; eps f32
.include "zrt.inc"
.include "arith.inc"
zrt_kernel name=delta_unit, buffers=2, constants=4, threads=32, vgprs=24, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0                // conv_out, unit, d, row, heads, eps
    v_and_b32 v0, 0x3ff, v0
    s_and_b32 s12, ttmp7, 0xffff                    // the token
    v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 0
    v_dual_mov_b32 v6, 0 :: v_dual_mov_b32 v7, 0
    v_lshlrev_b32 v1, 2, v0                         // the lane's first element
    v_lshlrev_b32 v2, 4, v0
    s_wait_kmcnt 0x0
    s_mul_i32 s13, ttmp9, s8                        // the head's first column
    s_mul_i32 s14, s12, s9
    s_mul_hi_u32 s15, s12, s9
    s_mov_b32 s16, s13
    s_mov_b32 s17, 0
    s_add_nc_u64 s[14:15], s[14:15], s[16:17]
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[4:5], s[4:5], s[14:15]
    s_mul_i32 s18, s8, s10
    s_mul_i32 s14, s12, s18
    s_mul_hi_u32 s15, s12, s18
    s_add_nc_u64 s[14:15], s[14:15], s[16:17]
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[6:7], s[6:7], s[14:15]
    v_cmp_gt_u32 vcc_lo, s8, v1
    wait_vcc
    s_and_saveexec_b32 s19, vcc_lo
    global_load_b128 v[4:7], v2, s[4:5]
    s_mov_b32 exec_lo, s19
    s_wait_loadcnt 0x0
    v_mul_f32 v8, v4, v4                            // squares: no -0 for the +0 of an empty accumulator to change
    v_mul_f32 v9, v5, v5
    v_mul_f32 v10, v6, v6
    v_mul_f32 v11, v7, v7
    f32_sum4 v12, v8, v9, v10, v11
    f32_butterfly v12, v13
    v_add_f32 v12, s11, v12
    f32_rsqrt v12, v12, v13, v14, v15, v16
    v_mul_f32 v4, v4, v12
    v_mul_f32 v5, v5, v12
    v_mul_f32 v6, v6, v12
    v_mul_f32 v7, v7, v12
    v_cmp_gt_u32 vcc_lo, s8, v1
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    global_store_b128 v2, v[4:7], s[6:7]
    s_endpgm
zrt_end
