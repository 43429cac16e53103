// Every work-item takes the next record and writes where it stands: nothing here relies on the ids being right.
//
// buffers: taken u32[1], zero at first; records u32[limit][4]: ttmp9, ttmp7, v0, ttmp8
// constants: limit
.include "zrt.inc"
zrt_kernel name=ids, buffers=2, constants=1, threads=64, vgprs=16, sgprs=16
    s_load_b128 s[4:7], s[0:1], 0x0
    s_load_b32 s8, s[0:1], 0x10
    v_mov_b32 v4, ttmp9
    v_mov_b32 v5, ttmp7
    v_mov_b32 v6, v0
    v_mov_b32 v7, ttmp8
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_wait_kmcnt 0x0
    global_atomic_add_u32 v3, v1, v2, s[4:5] th:TH_ATOMIC_RETURN scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    v_cmp_gt_u32 vcc_lo, s8, v3
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s9, vcc_lo
    v_lshlrev_b32 v3, 4, v3
    global_store_b128 v3, v[4:7], s[6:7]
    s_endpgm
zrt_end
