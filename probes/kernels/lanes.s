// How wide EXEC is and which lane this is. The same code in wave32 and wave64: a compare writes as many bits of VCC
// as the wave has lanes.
//
// buffers: out u32[groups * 64][2]: width, lane
.include "zrt.inc"
zrt_kernel name=lanes, buffers=1, threads=64, vgprs=8, sgprs=16
    s_load_b64 s[2:3], s[0:1], 0x0
    s_mov_b64 vcc, 0
    v_and_b32 v1, 0x3ff, v0
    v_lshl_add_u32 v1, ttmp9, 6, v1
    v_lshlrev_b32 v1, 3, v1
    v_cmp_eq_u32 vcc_lo, v0, v0
    v_mbcnt_lo_u32_b32 v3, -1, 0
    v_mbcnt_hi_u32_b32 v3, -1, v3
    s_wait_alu 0xfffd
    s_bcnt1_i32_b64 s4, vcc
    v_mov_b32 v2, s4
    s_wait_kmcnt 0x0
    global_store_b64 v1, v[2:3], s[2:3]
    s_endpgm
zrt_end
