// SHARED_EXPERT's end: out = hidden + down * sigmoid(score).
//
// grid: x blocks of 128 columns, y tokens
// buffers: down f32 [T][width], score f32 [T] or 0, hidden f32 [T][width] or 0, out f32 [T][width]
// constants: width
.include "zrt.inc"
.include "arith.inc"
zrt_kernel name=expert_gate, buffers=4, constants=1, threads=128, vgprs=16, sgprs=24

    s_load_b256 s[4:11], s[0:1], 0x0
    s_load_b32 s12, s[0:1], 0x20
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 7, v0
    s_and_b32 s14, ttmp7, 0xffff
    s_wait_kmcnt 0x0
    v_cmpx_gt_u32 s12, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v0, 2, v0
    s_lshl_b32 s15, s12, 2              // bytes of a row
    s_mul_hi_u32 s19, s14, s15
    s_mul_i32 s18, s14, s15
    s_add_nc_u64 s[4:5], s[4:5], s[18:19]
    s_add_nc_u64 s[10:11], s[10:11], s[18:19]
    global_load_b32 v1, v0, s[4:5]
    s_cmp_eq_u64 s[6:7], 0
    s_cbranch_scc1 .Lungated
    s_lshl_b32 s14, s14, 2
    v_mov_b32 v2, s14
    global_load_b32 v3, v2, s[6:7]
    s_wait_loadcnt 0x0
    f32_sigmoid v2, v3, v4, v5, v6, v7
    v_mul_f32 v1, v1, v2
.Lungated:
    s_cmp_eq_u64 s[8:9], 0
    s_cbranch_scc1 .Lstore
    s_add_nc_u64 s[8:9], s[8:9], s[18:19]
    global_load_b32 v3, v0, s[8:9]
    s_wait_loadcnt 0x0
    v_add_f32 v1, v3, v1
.Lstore:
    s_wait_loadcnt 0x0
    global_store_b32 v0, v1, s[10:11]
.Lend:
    s_endpgm
zrt_end
