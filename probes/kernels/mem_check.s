// Compares memory with the pattern of mem_pattern.inc.
//
// buffers: memory u32[rounds * groups * 256 * 4]; report u32[4], {0, 0xffffffff, 0, 0} at first: quads of dwords that
//          differ, the lowest number of one (of 16 bytes each, from the start), all bits that differ
// constants: rounds; bytes of a round (groups * 4096); seed; mask
.include "zrt.inc"
.include "mem_pattern.inc"
zrt_kernel name=mem_check, buffers=2, constants=4, threads=256, vgprs=24, sgprs=24
    s_clause 0x1
    s_load_b128 s[4:7], s[0:1], 0x0
    s_load_b128 s[8:11], s[0:1], 0x10
    mem_pattern_start
    v_mov_b32 v14, 0
    s_wait_kmcnt 0x0
    v_add_nc_u32 v2, s10, v2
    s_lshr_b32 s12, s9, 2
    s_lshr_b32 s13, s9, 4
    s_mul_i32 s12, s12, lit(0x9e3779b1)
.Lround:
    global_load_b128 v[8:11], v1, s[4:5] scope:SCOPE_SYS
    mem_pattern_quad
    s_wait_loadcnt 0x0
    v_xor_b32 v4, v4, v8
    v_xor_b32 v5, v5, v9
    v_xor_b32 v6, v6, v10
    v_xor_b32 v7, v7, v11
    v_or3_b32 v4, v4, v5, v6
    v_or_b32 v4, v4, v7
    v_cmp_ne_u32 vcc_lo, 0, v4
    s_and_saveexec_b32 s14, vcc_lo
    s_cbranch_execz .Lequal
    v_mov_b32 v12, 1
    global_atomic_add_u32 v14, v12, s[6:7] scope:SCOPE_DEV
    global_atomic_min_u32 v14, v0, s[6:7] offset:4 scope:SCOPE_DEV
    global_atomic_or_b32 v14, v4, s[6:7] offset:8 scope:SCOPE_DEV
.Lequal:
    s_mov_b32 exec_lo, s14
    v_add_nc_u32 v0, s13, v0
    mem_pattern_next
    s_endpgm
zrt_end
