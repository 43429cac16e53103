// An instruction that no gfx12 has: SOPP opcode 0x7f. What stands behind it must never run.
//
// buffers: out u32[1]
.include "zrt.inc"
zrt_kernel name=illegal, buffers=1, threads=32, vgprs=8, sgprs=8
    s_load_b64 s[2:3], s[0:1], 0x0
    s_mov_b32 exec_lo, 1
    v_mov_b32 v0, 0
    v_mov_b32 v1, 1
    s_wait_kmcnt 0x0
    .long 0xbfff0000
    global_store_b32 v0, v1, s[2:3]
    s_endpgm
zrt_end
