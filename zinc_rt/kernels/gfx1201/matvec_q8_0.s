// y = x times Q8_0 rows. Arguments: matvec.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "weights.inc"
zrt_kernel name=matvec_q8_0, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72

    matvec_begin
    matvec_plane 40, 0, s20
    matvec_plane 48, s21, s22
    q8_0_begin
    v_lshlrev_b32 v1, 4, v0
    matvec_zero
    s_lshr_b32 s64, s19, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matvec_load_group q8_0
    matvec_group_row q8_0, 0
    matvec_group_row q8_0, 1
    matvec_group_row q8_0, 2
    matvec_group_row q8_0, 3
    matvec_next_group q8_0
.Ltail:
    matvec_tail_begin q8_0
.Lpair:
    matvec_tail_load q8_0
    matvec_tail_row q8_0, 0
    matvec_tail_row q8_0, 1
    matvec_tail_row q8_0, 2
    matvec_tail_row q8_0, 3
    matvec_next_pair q8_0
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
