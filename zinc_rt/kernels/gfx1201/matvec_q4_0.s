// y = x times Q4_0 rows. Arguments: matvec.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "weights.inc"
zrt_kernel name=matvec_q4_0, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72

    matvec_begin
    matvec_plane 40, 0, s20
    matvec_plane 48, s21, s22
    q4_0_begin
    v_lshlrev_b32 v1, 4, v0
    matvec_zero
    s_lshr_b32 s64, s19, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matvec_load_group q4_0
    matvec_group_row q4_0, 0
    matvec_group_row q4_0, 1
    matvec_group_row q4_0, 2
    matvec_group_row q4_0, 3
    matvec_next_group q4_0
.Ltail:
    matvec_tail_begin q4_0
.Lpair:
    matvec_tail_load q4_0
    matvec_tail_row q4_0, 0
    matvec_tail_row q4_0, 1
    matvec_tail_row q4_0, 2
    matvec_tail_row q4_0, 3
    matvec_next_pair q4_0
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
