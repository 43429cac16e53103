// Fills memory with the pattern of mem_pattern.inc.
//
// buffers: memory u32[rounds * groups * 256 * 4]
// constants: rounds; bytes of a round (groups * 4096); seed; mask
.include "zrt.inc"
.include "mem_pattern.inc"
zrt_kernel name=mem_fill, buffers=1, constants=4, threads=256, vgprs=16, sgprs=24
    s_clause 0x1
    s_load_b64 s[4:5], s[0:1], 0x0
    s_load_b128 s[8:11], s[0:1], 0x8
    mem_pattern_start
    s_wait_kmcnt 0x0
    v_add_nc_u32 v2, s10, v2
    s_lshr_b32 s12, s9, 2
    s_mul_i32 s12, s12, lit(0x9e3779b1)
.Lround:
    mem_pattern_quad
    global_store_b128 v1, v[4:7], s[4:5]
    mem_pattern_next
    s_endpgm
zrt_end
