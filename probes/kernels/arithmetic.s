// Every float whose lower half is 0, except infinities and NaNs, in every lane: products and sums whose results IEEE 754
// determines, and integer products, folded to one number of each work-item. All work-items get the same number.
//
// buffers: out u32[groups * threads]: h = 31 h + r for each result r, from h = 0
// constants: first, end: x is first << 16 to (end - 1) << 16
.include "zrt.inc"
zrt_kernel name=arithmetic, buffers=1, constants=2, threads=32, vgprs=16, sgprs=24
    s_load_b128 s[4:7], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    v_lshlrev_b32 v0, 2, v0
    v_mov_b32 v1, 0
    s_wait_kmcnt 0x0
.Lvalue:
    s_and_b32 s8, s6, 0x7f80
    s_cmp_eq_u32 s8, 0x7f80
    s_cbranch_scc1 .Lnext
    s_lshl_b32 s8, s6, 16
    v_mov_b32 v2, s8
    v_mul_f32 v3, 1.0, v2
    v_fma_f32 v4, v2, v2, v2
    v_add_f32 v5, 0.5, v2
    v_mul_lo_u32 v6, lit(0x9e3779b1), v2
.irp n, 3, 4, 5, 6
    v_mul_lo_u32 v1, 31, v1
    v_add_nc_u32 v1, v1, v\n
.endr
.Lnext:
    s_add_co_i32 s6, s6, 1
    s_cmp_lt_u32 s6, s7
    s_cbranch_scc1 .Lvalue
    global_store_b32 v0, v1, s[4:5]
    s_endpgm
zrt_end
