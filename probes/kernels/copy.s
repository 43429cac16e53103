// out[i] = in[i], a dword a lane, straight through the caches.
//
// buffers: in u32[groups * 32], out u32[groups * 32]
.include "zrt.inc"
zrt_kernel name=copy, buffers=2, threads=32, vgprs=8, sgprs=16
    s_load_b128 s[4:7], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    v_lshlrev_b32 v0, 2, v0
    s_wait_kmcnt 0x0
    global_load_b32 v1, v0, s[4:5]
    s_wait_loadcnt 0x0
    global_store_b32 v0, v1, s[6:7]
    s_endpgm
zrt_end
