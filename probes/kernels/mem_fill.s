// Fills memory with a pattern: dword i is (i * 0x9E3779B1 + seed) ^ mask.
//
// buffers: memory u32[rounds * groups * 256 * 4]
// constants: rounds; bytes of a round (groups * 4096); seed; mask
.include "zrt.inc"
zrt_kernel name=mem_fill, buffers=1, constants=4, threads=256, vgprs=16, sgprs=24
    s_clause 0x1
    s_load_b64 s[4:5], s[0:1], 0x0
    s_load_b128 s[8:11], s[0:1], 0x8
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0
    v_lshlrev_b32 v1, 4, v0
    v_lshlrev_b32 v2, 2, v0
    v_mul_lo_u32 v2, v2, lit(0x9e3779b1)
    s_wait_kmcnt 0x0
    v_add_nc_u32 v2, s10, v2
    s_lshr_b32 s12, s9, 2
    s_mul_i32 s12, s12, lit(0x9e3779b1)
.Lround:
    v_add_nc_u32 v5, lit(0x9e3779b1), v2
    v_xor_b32 v4, s11, v2
    v_add_nc_u32 v6, lit(0x9e3779b1), v5
    v_xor_b32 v5, s11, v5
    v_add_nc_u32 v7, lit(0x9e3779b1), v6
    v_xor_b32 v6, s11, v6
    v_xor_b32 v7, s11, v7
    v_add_nc_u32 v2, s12, v2
    global_store_b128 v1, v[4:7], s[4:5]
    s_add_co_u32 s4, s4, s9
    s_add_co_ci_u32 s5, s5, 0
    s_sub_co_u32 s8, s8, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lround
    s_endpgm
zrt_end
