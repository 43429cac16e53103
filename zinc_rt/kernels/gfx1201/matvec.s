// y = x times a weight's rows, of any type: one text, made once a weight type. Arguments: matvec.inc; weights as in the
// file: plain.inc; packed ones: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_\type, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72
    matvec_begin
    matvec_plane 40, 0, s20
.if \type\()_QUANTS
    matvec_plane 48, s21, s22
    .if \type\()_HIGH
    matvec_plane 56, s23, s24
    .endif
    \type\()_begin
    v_lshlrev_b32 v1, 4, v0
    matvec_zero 8, 16                   // the sums
    s_lshr_b32 s64, s19, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matvec_load_group \type
    matvec_group_row \type, 0
    matvec_group_row \type, 1
    matvec_group_row \type, 2
    matvec_group_row \type, 3
    matvec_next_group \type
.Ltail:
    matvec_tail_begin \type
.Lpair:
    matvec_tail_load \type
    matvec_tail_row \type, 0
    matvec_tail_row \type, 1
    matvec_tail_row \type, 2
    matvec_tail_row \type, 3
    matvec_next_pair \type
.else
    plain_begin \type
    matvec_zero 8, 16                   // the sums
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lblock:
    plain_load_block \type
    plain_block_row \type, 0
    plain_block_row \type, 1
    plain_block_row \type, 2
    plain_block_row \type, 3
    plain_next_block \type
.Ltail:
    s_cmp_eq_u32 s65, 0
    s_cbranch_scc1 .Lsum
.Lstep:
    plain_tail \type, 0
    plain_tail \type, 1
    plain_tail \type, 2
    plain_tail \type, 3
    plain_next_step \type
.endif
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
.endm
