// Reads LDS behind the end of what the launch has.
//
// buffers: out u32[1]; constants: byte offset to read
.include "zrt.inc"
zrt_kernel name=lds_beyond, buffers=1, constants=1, threads=32, vgprs=8, sgprs=16, lds=512
    s_load_b96 s[4:6], s[0:1], 0x0
    s_mov_b64 exec, 1
    v_mov_b32 v0, 0
    v_mov_b32 v2, lit(0x600dda7a)
    s_wait_kmcnt 0x0
    v_mov_b32 v1, s6
    ds_load_b32 v2, v1
    s_wait_dscnt 0x0
    global_store_b32 v0, v2, s[4:5]
    s_endpgm
zrt_end
