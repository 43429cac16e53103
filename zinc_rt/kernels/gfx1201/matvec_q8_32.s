// Projections in canonical-1-q8 by weights in blocks of 32, q8_0 and q4_0: matvec_q8.inc. Lane l has the blocks of its
// eight lanes in step l % 8 of each group, one of the oracle's 32 accumulators.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "q8.inc"
.include "matvec_q8.inc"

.macro q8_32_row type, r
    matvec_q8_dots \type, \r
    q8_eights add_nc_u32, 36
    v_cvt_f32_f16 v44, v[Q+\type\()_SIZE-1]
    v_add_nc_u32 v36, v36, v32          // weights were \type\()_LESS too large
    v_mul_f32 v44, v44, v34
    v_cvt_f32_i32 v36, v36
    v_mul_f32 v36, v36, v44
    v_add_f32 v[8+4*\r], v[8+4*\r], v36
.endm

// Lane 8e + j has accumulator 4j + e: the butterfly's first steps are those of e.
.macro q8_32_sum v
    v_add_f32_dpp v\v, v\v, v\v row_xmask:8 row_mask:0xf bank_mask:0xf
    v_permlanex16_b32 v36, v\v, s72, s73
    v_add_f32 v\v, v\v, v36
    .irp distance, 1, 2, 4
    v_add_f32_dpp v\v, v\v, v\v row_xmask:\distance row_mask:0xf bank_mask:0xf
    .endr
.endm

.macro zrt_of_q8_32 type
zrt_kernel name=matvec_q8_32_\type, buffers=7, constants=10, threads=128, vgprs=84, sgprs=76
    matvec_q8_begin \type, Q8_32_GROUP
    v_mov_b32 v7, v6
.Lgroup:
    matvec_q8_load \type
    s_wait_loadcnt ROWS * \type\()_LOADS
    v_mul_i32_i24 v32, -\type\()_LESS, v32
    .irp r, 0, 1, 2, 3
    q8_32_row \type, \r
    .endr
    matvec_q8_next \type
    .irp v, 8, 12, 16, 20
    q8_32_sum \v
    .endr
    matvec_value
    matvec_put
.Lend:
    s_endpgm
    matvec_q8_tail \type
zrt_end
.endm
