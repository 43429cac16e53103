// Each lane spills 64 dwords of its own, lets others do so, and reads them back.
//
// buffers: out u32[groups * 64]: the dwords folded, h = 31 h + dword, the first one first;
//          dword d of work-item i is i * 0x9e3779b1 + d * 0x85ebca6b
.include "zrt.inc"
zrt_kernel name=scratch, buffers=1, threads=64, vgprs=16, sgprs=16, scratch=256
    s_load_b64 s[2:3], s[0:1], 0x0
    v_and_b32 v1, 0x3ff, v0
    v_lshl_add_u32 v1, ttmp9, 6, v1
    v_mul_lo_u32 v2, v1, lit(0x9e3779b1)
    s_mov_b32 s4, 0
.Lspill:
    scratch_store_b32 off, v2, s4
    v_add_nc_u32 v2, lit(0x85ebca6b), v2
    s_add_co_i32 s4, s4, 4
    s_cmp_lg_u32 s4, 0x100
    s_cbranch_scc1 .Lspill
    s_wait_storecnt 0x0
    s_sleep 0x10
    v_mov_b32 v3, 0
    s_mov_b32 s4, 0
.Lreload:
    scratch_load_b32 v4, off, s4
    v_mul_lo_u32 v3, 31, v3
    s_add_co_i32 s4, s4, 4
    s_wait_loadcnt 0x0
    v_add_nc_u32 v3, v3, v4
    s_cmp_lg_u32 s4, 0x100
    s_cbranch_scc1 .Lreload
    v_lshlrev_b32 v1, 2, v1
    s_wait_kmcnt 0x0
    global_store_b32 v1, v3, s[2:3]
    s_endpgm
zrt_end
