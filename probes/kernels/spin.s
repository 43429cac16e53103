// Runs until the host writes something else than 0, then says so.
//
// buffers: stop u32[1], out u32[1]: 1 once it has started, 2 at its end
.include "zrt.inc"
zrt_kernel name=spin, buffers=2, threads=32, vgprs=8, sgprs=16
    s_load_b128 s[4:7], s[0:1], 0x0
    s_mov_b32 exec_lo, 1
    v_mov_b32 v0, 0
    v_mov_b32 v2, 1
    s_wait_kmcnt 0x0
    global_store_b32 v0, v2, s[6:7] scope:SCOPE_SYS
.Lagain:
    s_sleep 0x8
    global_load_b32 v1, v0, s[4:5] scope:SCOPE_SYS
    s_wait_loadcnt 0x0
    v_readfirstlane_b32 s8, v1
    s_cmp_eq_u32 s8, 0
    s_cbranch_scc1 .Lagain
    v_mov_b32 v2, 2
    global_store_b32 v0, v2, s[6:7] scope:SCOPE_SYS
    s_endpgm
zrt_end
