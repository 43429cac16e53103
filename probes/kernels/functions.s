// exp2, log2, 1/x, 1/sqrt and sqrt of each input: the instructions whose last bit the manual leaves open.
//
// buffers: in f32[groups * 32], out f32[groups * 32][8], five of them written
.include "zrt.inc"
zrt_kernel name=functions, buffers=2, threads=32, vgprs=16, sgprs=16
    s_load_b128 s[4:7], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    v_lshlrev_b32 v1, 2, v0
    v_lshlrev_b32 v2, 5, v0
    s_wait_kmcnt 0x0
    global_load_b32 v3, v1, s[4:5]
    s_wait_loadcnt 0x0
    v_exp_f32 v4, v3
    v_log_f32 v5, v3
    v_rcp_f32 v6, v3
    v_rsq_f32 v7, v3
    v_sqrt_f32 v8, v3
    global_store_b128 v2, v[4:7], s[6:7]
    global_store_b32 v2, v8, s[6:7] offset:16
    s_endpgm
zrt_end
