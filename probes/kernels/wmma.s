// One matrix multiply-accumulate a workgroup, of whatever is in memory: D = A B + C.
//
// buffers: a, b f16[groups][32 lanes][8]; c, out f32[groups][32 lanes][8]
.include "zrt.inc"
zrt_kernel name=wmma, buffers=4, threads=32, vgprs=24, sgprs=16
    s_load_b256 s[4:11], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    v_lshlrev_b32 v1, 4, v0
    v_lshlrev_b32 v2, 5, v0
    s_wait_kmcnt 0x0
    global_load_b128 v[4:7], v1, s[4:5]
    global_load_b128 v[8:11], v1, s[6:7]
    global_load_b128 v[12:15], v2, s[8:9]
    global_load_b128 v[16:19], v2, s[8:9] offset:16
    s_wait_loadcnt 0x0
    v_wmma_f32_16x16x16_f16 v[12:19], v[4:7], v[8:11], v[12:19]
    global_store_b128 v2, v[12:15], s[10:11]
    global_store_b128 v2, v[16:19], s[10:11] offset:16
    s_endpgm
zrt_end
