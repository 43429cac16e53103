// What arithmetic makes of numbers too small to be normal.
//
// buffers: in u32[2], a denormal f32 and a denormal f16; out u32[2]: in[0] + 0, in[1] + 0
.include "zrt.inc"
zrt_kernel name=denormals, buffers=2, threads=32, vgprs=8, sgprs=16
    s_load_b128 s[4:7], s[0:1], 0x0
    s_mov_b64 exec, 1
    v_mov_b32 v0, 0
    s_wait_kmcnt 0x0
    global_load_b64 v[2:3], v0, s[4:5]
    s_wait_loadcnt 0x0
    v_add_f32 v2, 0, v2
    v_add_f16 v3, 0, v3
    global_store_b64 v0, v[2:3], s[6:7]
    s_endpgm
zrt_end
