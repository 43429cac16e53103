// y = x times Q6_K rows, four tokens at a time. Arguments: matmul.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matmul.inc"
.include "matvec.inc"
.include "weights.inc"
zrt_kernel name=matmul_q6_k, buffers=6, constants=8, threads=128, vgprs=102, sgprs=80

    matmul_begin
    matmul_plane 40, 0, s18
    matmul_plane 48, s19, s20
    matmul_plane 56, s21, s22
    q6_k_begin
    v_lshlrev_b32 v1, 4, v0
    matmul_zero SUMS, 32
    s_lshr_b32 s64, s17, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matmul_load_group q6_k
    matmul_pair q6_k, 0
    matmul_pair q6_k, 1
    matmul_pair q6_k, 2
    matmul_pair q6_k, 3
    matmul_next_group q6_k
.Ltail:
    matmul_tail_begin q6_k
.Lpair:
    matmul_tail_pair q6_k
    matmul_next_pair
.Lsum:
    matmul_sum
    matmul_store
.Lend:
    s_endpgm
zrt_end
