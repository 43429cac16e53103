// MOE_DOWN_ACC's end: out = hidden + sum over choices, in their order from +0, of down * weight.
//
// grid: x blocks of 128 columns, y tokens
// buffers: down f32 [T][choices][width], weights f32 [T][choices], hidden f32 [T][width] or 0, out f32 [T][width]
// constants: width, choices
.include "zrt.inc"
zrt_kernel name=expert_sum, buffers=4, constants=2, threads=128, vgprs=16, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0
    s_load_b64 s[12:13], s[0:1], 0x20
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 7, v0
    s_and_b32 s14, ttmp7, 0xffff
    s_wait_kmcnt 0x0
    v_cmpx_gt_u32 s12, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v0, 2, v0
    s_lshl_b32 s15, s12, 2              // bytes of a row
    s_mul_i32 s16, s14, s13
    s_mul_hi_u32 s19, s16, s15
    s_mul_i32 s18, s16, s15
    s_add_nc_u64 s[4:5], s[4:5], s[18:19]
    s_mov_b32 s17, 0
    s_lshl_b64 s[16:17], s[16:17], 2
    s_add_nc_u64 s[6:7], s[6:7], s[16:17]
    s_mul_hi_u32 s19, s14, s15
    s_mul_i32 s18, s14, s15
    s_add_nc_u64 s[10:11], s[10:11], s[18:19]
    s_mov_b32 s20, s15
    s_mov_b32 s21, 0
    s_mov_b32 s22, s13
    v_mov_b32 v1, 0                     // sum
    v_mov_b32 v2, 0                     // byte offset in weights
.Lchoice:
    s_clause 0x1
    global_load_b32 v3, v0, s[4:5]
    global_load_b32 v4, v2, s[6:7]
    v_add_nc_u32 v2, 4, v2
    s_add_nc_u64 s[4:5], s[4:5], s[20:21]
    s_sub_co_i32 s22, s22, 1
    s_cmp_lg_u32 s22, 0
    s_wait_loadcnt 0x0
    v_mul_f32 v3, v3, v4
    v_add_f32 v1, v1, v3
    s_cbranch_scc1 .Lchoice
    s_cmp_eq_u64 s[8:9], 0
    s_cbranch_scc1 .Lstore
    s_add_nc_u64 s[8:9], s[8:9], s[18:19]
    global_load_b32 v3, v0, s[8:9]
    s_wait_loadcnt 0x0
    v_add_f32 v1, v3, v1
.Lstore:
    global_store_b32 v0, v1, s[10:11]
.Lend:
    s_endpgm
zrt_end
