// One lane stores a constant that is patched in at load. Runs in wave32 and wave64 alike.
//
// buffers: out u32[1]
.include "zrt.inc"
zrt_kernel name=store, buffers=1, threads=32, vgprs=8, sgprs=8
    s_load_b64 s[2:3], s[0:1], 0x0
    zrt_constant s4, VALUE
    s_mov_b64 exec, 1
    v_mov_b32 v1, 0
    v_mov_b32 v2, s4
    s_wait_kmcnt 0x0
    global_store_b32 v1, v2, s[2:3]
    s_endpgm
zrt_end
