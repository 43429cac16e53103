// One hardware register. The loader writes another register's number into the first instruction.
//
// buffers: out u32[1]
.include "zrt.inc"
zrt_kernel name=getreg, buffers=1, threads=32, vgprs=8, sgprs=16
    s_getreg_b32 s4, hwreg(HW_REG_MODE)
    s_load_b64 s[2:3], s[0:1], 0x0
    s_mov_b64 exec, 1
    v_mov_b32 v0, 0
    v_mov_b32 v1, s4
    s_wait_kmcnt 0x0
    global_store_b32 v0, v1, s[2:3]
    s_endpgm
zrt_end
