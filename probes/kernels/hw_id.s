// Where each wave ran. It stays a while, so that the next ones go elsewhere.
//
// buffers: out u32[groups][2]: HW_ID1, HW_ID2
.include "zrt.inc"
zrt_kernel name=hw_id, buffers=1, threads=32, vgprs=8, sgprs=16
    s_load_b64 s[2:3], s[0:1], 0x0
    s_getreg_b32 s4, hwreg(HW_REG_HW_ID1)
    s_getreg_b32 s5, hwreg(HW_REG_HW_ID2)
    s_mov_b32 exec_lo, 1
    s_lshl_b32 s6, ttmp9, 3
    v_mov_b32 v0, s6
    v_mov_b32 v2, s4
    v_mov_b32 v3, s5
    s_sleep 0x40
    s_wait_kmcnt 0x0
    global_store_b64 v0, v[2:3], s[2:3]
    s_endpgm
zrt_end
