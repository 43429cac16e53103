// Grids whose size is a count of the step: one lane writes one grid, three dwords.
//
// buffers: counts i32[3]; specs u32[n][3], a number or 1 << 31 and the index of a count; grids u32[n][3], written
// constants: n
.include "zrt.inc"
zrt_kernel name=step_grids, buffers=3, constants=1, threads=32, vgprs=16, sgprs=24

    s_load_b128 s[4:7], s[0:1], 0x0         // counts, specs
    s_load_b96 s[8:10], s[0:1], 0x10        // grids, n
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    s_wait_kmcnt 0x0
    s_load_b96 s[12:14], s[4:5], 0x0        // tokens, sequences, rows
    v_cmp_gt_u32 vcc_lo, s10, v0
    s_wait_alu 0xfffd
    s_and_saveexec_b32 s11, vcc_lo
    s_cbranch_execz .Lend
    v_mul_u32_u24 v1, 12, v0
    global_load_b96 v[2:4], v1, s[6:7]
    s_wait_loadcnt 0x0
    s_wait_kmcnt 0x0
.irp dim, 2, 3, 4
    v_and_b32 v5, 3, v\dim
    v_mov_b32 v6, s12
    v_cmp_eq_u32 vcc_lo, 1, v5
    s_wait_alu 0xfffd
    v_cndmask_b32 v6, v6, s13, vcc_lo
    v_cmp_eq_u32 vcc_lo, 2, v5
    s_wait_alu 0xfffd
    v_cndmask_b32 v6, v6, s14, vcc_lo
    v_cmp_gt_i32 vcc_lo, 0, v\dim           // the mark is the sign
    s_wait_alu 0xfffd
    v_cndmask_b32 v\dim, v\dim, v6, vcc_lo
.endr
    global_store_b96 v1, v[2:4], s[8:9]
.Lend:
    s_endpgm
zrt_end
