// Three values in scalar registers, each read by the VALU right behind the write and with no s_wait_alu between, after
// the VALU has read the register before: the RDNA4 SGPR read hazard. Odd rounds write 1, even rounds 0.
//
// buffers: out u32[groups][3][32], how often a lane read the old value: a carry in VCC, a VALU's write, a SALU's
// constants: rounds
.include "zrt.inc"
zrt_kernel name=sgpr_read, buffers=1, constants=1, threads=32, vgprs=16, sgprs=24
    s_load_b64 s[2:3], s[0:1], 0x0
    s_load_b32 s4, s[0:1], 0x8
    v_mov_b32 v1, 0                     // old values of VCC
    v_mov_b32 v2, 0                     // of a VALU's s8
    v_mov_b32 v3, 0                     // of a SALU's s10
    v_mov_b32 v4, 1
    v_mov_b32 v5, 0                     // odd or even
    s_mov_b32 s10, 0
    s_wait_kmcnt 0x0
round:
    v_xor_b32 v5, 1, v5
    v_sub_nc_u32 v6, 0, v5              // in odd rounds -1, which carries
    v_add_co_u32 v7, vcc_lo, v6, v4
    v_add_co_ci_u32 v7, vcc_lo, 0, 0, vcc_lo
    v_xor_b32 v7, v7, v5
    v_add_nc_u32 v1, v1, v7

    v_cmp_eq_u32 s8, 1, v5
    v_cndmask_b32 v7, 0, 1, s8
    v_xor_b32 v7, v7, v5
    v_add_nc_u32 v2, v2, v7

    s_xor_b32 s10, s10, 1
    v_mov_b32 v7, s10
    v_xor_b32 v7, v7, v5
    v_add_nc_u32 v3, v3, v7

    s_sub_co_u32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 round
    s_mul_i32 s5, ttmp9, 384
    v_lshl_add_u32 v0, v0, 2, s5
    global_store_b32 v0, v1, s[2:3]
    global_store_b32 v0, v2, s[2:3] offset:128
    global_store_b32 v0, v3, s[2:3] offset:256
    s_endpgm
zrt_end
