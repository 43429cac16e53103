// Projections in canonical-1-q8 by weights in blocks of 256, the K types: matvec_q8.inc. Of a group's four blocks lane l
// has number l % 4, in the groups whose number is l / 4, modulo 8: one of the oracle's 32 accumulators.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "q8.inc"
.include "matvec_q8.inc"

// T_scale: v36 = the block's integer, v37 its minimums', each scaled, of the 32 quants whose dots v36 and v37 are
.macro q4_k_scale
    v_and_b32 v44, 0xff, v[Q+4]
    v_bfe_u32 v45, v[Q+4], 16, 8
    v_bfe_u32 v46, v[Q+4], 8, 8
    v_lshrrev_b32 v47, 24, v[Q+4]
    v_mul_i32_i24 v36, v36, v44
    v_mul_i32_i24 v46, v32, v46
    v_mad_i32_i24 v36, v37, v45, v36
    v_mad_i32_i24 v37, v33, v47, v46
.endm
.macro q5_k_scale
    q4_k_scale
.endm
.macro q6_k_scale
    v_bfe_i32 v44, v[Q+4], 0, 8
    v_bfe_i32 v45, v[Q+4], 8, 8
    v_add_nc_u32 v36, v36, v32          // weights were 32 too large
    v_add_nc_u32 v37, v37, v33
    v_mul_i32_i24 v36, v36, v44
    v_mad_i32_i24 v36, v37, v45, v36
.endm

// The sum at \at += float32(v\integer) * (d * dx), d being the float16 in v[d], which is clobbered
.macro q8_256_add at, integer, d
    v_cvt_f32_f16 v[\d], v[\d]
    v_cvt_f32_i32 v\integer, v\integer
    v_mul_f32 v[\d], v[\d], v34
    v_mul_f32 v\integer, v\integer, v[\d]
    v_add_f32 v[\at], v[\at], v\integer
.endm

.macro q8_256_row type, r
    matvec_q8_dots \type, \r
    q8_fours add_nc_u32, 36, 38, 40, 42
    q8_fours add_nc_u32, 37, 39, 41, 43
    \type\()_scale
    q8_apart add_nc_u32, 36, 38
    .if \type\()_LESS == 0
    q8_apart add_nc_u32, 37, 38
    v_lshrrev_b32 v38, 16, v[Q+5]
    .endif
    v_cmpx_eq_u32 0, v11
    q8_256_add 8+4*\r, 36, Q+5
    .if \type\()_LESS == 0
    q8_256_add 9+4*\r, 37, 38
    .endif
    s_mov_b32 exec_lo, -1
.endm

.macro q8_256_sum type, r
    f32_butterfly v[8+4*\r], v36
    .if \type\()_LESS == 0
    f32_butterfly v[9+4*\r], v36
    v_sub_f32 v[8+4*\r], v[8+4*\r], v[9+4*\r]
    .endif
.endm

.macro zrt_of_q8_256 type
zrt_kernel name=matvec_q8_256_\type, buffers=7, constants=10, threads=128, vgprs=80, sgprs=76
    matvec_q8_begin \type, Q8_256_GROUP
    v_and_b32 v7, 3, v0
    v_lshlrev_b32 v7, 2, v7
    v_lshrrev_b32 v11, 2, v0
.Lgroup:
    matvec_q8_load \type
    s_wait_loadcnt ROWS * \type\()_LOADS
    v_ashrrev_i32 v33, 16, v32
    v_bfe_i32 v32, v32, 0, 16
    .if \type\()_LESS
    v_mul_i32_i24 v32, -\type\()_LESS, v32
    v_mul_i32_i24 v33, -\type\()_LESS, v33
    .endif
    .irp r, 0, 1, 2, 3
    q8_256_row \type, \r
    .endr
    v_add_nc_u32 v11, 7, v11
    v_and_b32 v11, 7, v11
    matvec_q8_next \type
    .irp r, 0, 1, 2, 3
    q8_256_sum \type, \r
    .endr
    matvec_value
    matvec_put
.Lend:
    s_endpgm
    matvec_q8_tail \type
zrt_end
.endm
