// Biases of the selected experts, in place: out[t][c] += bias[ids[t][c]].
//
// grid: x blocks of 256 columns, y tokens, z choices. One wave.
// buffers: out f32 [T][choices][rows], bias f32 [experts][rows], ids i32 [T][choices]
// constants: rows, choices
.include "zrt.inc"
zrt_kernel name=expert_bias, buffers=3, constants=2, threads=32, vgprs=8, sgprs=24
    s_load_b128 s[4:7], s[0:1], 0x0                 // out, bias
    s_load_b128 s[8:11], s[0:1], 0x10               // ids, rows, choices
    s_and_b32 s2, ttmp7, 0xffff
    s_lshr_b32 s3, ttmp7, 16
    s_wait_kmcnt 0x0
    s_mul_i32 s2, s2, s11
    s_add_co_u32 s2, s2, s3                         // token * choices + choice
    s_lshl_b32 s3, s2, 2
    s_load_b32 s3, s[8:9], s3 offset:0x0            // the expert
    s_lshl_b32 s12, s10, 2                          // bytes of a row
    s_mul_hi_u32 s15, s2, s12
    s_mul_i32 s14, s2, s12
    s_add_nc_u64 s[4:5], s[4:5], s[14:15]
    s_lshl_b32 s16, ttmp9, 8                        // the first column
    s_sub_co_u32 s17, s10, s16                      // columns left
    s_min_u32 s17, s17, 0x100
    v_and_b32 v0, 31, v0
    v_add_lshl_u32 v1, v0, s16, 2
    s_wait_kmcnt 0x0
    s_mul_hi_u32 s15, s3, s12
    s_mul_i32 s14, s3, s12
    s_add_nc_u64 s[6:7], s[6:7], s[14:15]
.Lcolumns:
    v_cmp_gt_u32 vcc_lo, s17, v0
    s_wait_alu 0xfffd
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    global_load_b32 v2, v1, s[4:5]
    global_load_b32 v3, v1, s[6:7]
    s_wait_loadcnt 0x0
    v_add_f32 v2, v2, v3
    global_store_b32 v1, v2, s[4:5]
    v_add_nc_u32 v1, 0x80, v1
    v_add_nc_u32 v0, 32, v0
    s_branch .Lcolumns
.Lend:
    s_endpgm
zrt_end
