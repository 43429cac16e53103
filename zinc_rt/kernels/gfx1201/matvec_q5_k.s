// y = x times Q5_K rows. Arguments: matvec.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "weights.inc"
zrt_kernel name=matvec_q5_k, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72

    matvec_begin
    matvec_plane 40, 0, s20
    matvec_plane 48, s21, s22
    matvec_plane 56, s23, s24
    q5_k_begin
    v_lshlrev_b32 v1, 4, v0
    matvec_zero
    s_lshr_b32 s64, s19, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matvec_load_group q5_k
    matvec_group_row q5_k, 0
    matvec_group_row q5_k, 1
    matvec_group_row q5_k, 2
    matvec_group_row q5_k, 3
    matvec_next_group q5_k
.Ltail:
    matvec_tail_begin q5_k
.Lpair:
    matvec_tail_load q5_k
    matvec_tail_row q5_k, 0
    matvec_tail_row q5_k, 1
    matvec_tail_row q5_k, 2
    matvec_tail_row q5_k, 3
    matvec_next_pair q5_k
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
