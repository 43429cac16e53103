// SHARED_EXPERT's end with its gate's score: out = hidden + down * sigmoid(dot(x, gate)). Each wave computes the score.
//
// grid: x blocks of 128 columns, y tokens
// buffers: down f32 [T][width], x f32 [T][k], gate f32 [k], hidden f32 [T][width] or 0, out f32 [T][width]
// constants: width, k
.include "zrt.inc"
.include "arith.inc"
zrt_kernel name=expert_gate_dot, buffers=5, constants=2, threads=128, vgprs=24, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0                // down, x, gate, hidden
    s_load_b128 s[12:15], s[0:1], 0x20              // out, width, k
    v_and_b32 v0, 0x3ff, v0
    v_and_b32 v1, 31, v0
    v_lshlrev_b32 v1, 4, v1                         // the lane's bytes in a step of 128 elements
    v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 0
    v_dual_mov_b32 v6, 0 :: v_dual_mov_b32 v7, 0
    s_and_b32 s16, ttmp7, 0xffff                    // the token
    s_wait_kmcnt 0x0
    s_lshl_b32 s17, s15, 2                          // bytes of a row of x
    s_and_b32 s18, s17, 0xfffffe00                  // of whole steps
    s_mul_hi_u32 s21, s16, s17
    s_mul_i32 s20, s16, s17
    s_add_nc_u64 s[6:7], s[6:7], s[20:21]
    s_mov_b32 s19, 0
    s_cmp_eq_u32 s18, 0
    s_cbranch_scc1 .Ltail
.Lstep:
    s_clause 1
    global_load_b128 v[8:11], v1, s[6:7]
    global_load_b128 v[12:15], v1, s[8:9]
    v_add_nc_u32 v1, 512, v1
    s_add_co_u32 s19, s19, 512
    s_wait_loadcnt 0x0
    .irp j, 0, 1, 2, 3
    v_mul_f32 v[8+\j], v[8+\j], v[12+\j]
    v_add_f32 v[4+\j], v[4+\j], v[8+\j]
    .endr
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lstep
.Ltail:
    s_cmp_eq_u32 s18, s17
    s_cbranch_scc1 .Lsum
    .irp j, 0, 1, 2, 3
    v_cmp_gt_u32 vcc_lo, s17, v1
    v_dual_mov_b32 v8, 0 :: v_dual_mov_b32 v9, 0    // lanes without an element add +0
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    global_load_b32 v8, v1, s[6:7]
    global_load_b32 v9, v1, s[8:9]
    v_add_nc_u32 v1, 4, v1
    s_wait_loadcnt 0x0
    v_mul_f32 v8, v8, v9
    v_add_f32 v[4+\j], v[4+\j], v8
    s_mov_b32 exec_lo, -1
    .endr
.Lsum:
    f32_sum4 v3, v4, v5, v6, v7
    f32_butterfly v3, v4
    f32_sigmoid v2, v3, v4, v5, v6, v7
    v_lshl_add_u32 v0, ttmp9, 7, v0
    v_cmpx_gt_u32 s14, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v0, 2, v0
    s_lshl_b32 s22, s14, 2                          // bytes of a row
    s_mul_hi_u32 s21, s16, s22
    s_mul_i32 s20, s16, s22
    s_add_nc_u64 s[4:5], s[4:5], s[20:21]
    s_add_nc_u64 s[12:13], s[12:13], s[20:21]
    global_load_b32 v1, v0, s[4:5]
    s_wait_loadcnt 0x0
    v_mul_f32 v1, v1, v2
    s_cmp_eq_u64 s[10:11], 0
    s_cbranch_scc1 .Lstore
    s_add_nc_u64 s[10:11], s[10:11], s[20:21]
    global_load_b32 v3, v0, s[10:11]
    s_wait_loadcnt 0x0
    v_add_f32 v1, v3, v1
.Lstore:
    global_store_b32 v0, v1, s[12:13]
.Lend:
    s_endpgm
zrt_end
