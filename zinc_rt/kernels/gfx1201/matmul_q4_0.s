// y = x times Q4_0 rows, four tokens at a time. Arguments: matmul.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matmul.inc"
.include "matvec.inc"
.include "weights.inc"
zrt_kernel name=matmul_q4_0, buffers=6, constants=8, threads=128, vgprs=102, sgprs=80

    matmul_begin
    matmul_plane 40, 0, s18
    matmul_plane 48, s19, s20
    q4_0_begin
    v_lshlrev_b32 v1, 4, v0
    matmul_zero SUMS, 32
    s_lshr_b32 s64, s17, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matmul_load_group q4_0
    matmul_pair q4_0, 0
    matmul_pair q4_0, 1
    matmul_pair q4_0, 2
    matmul_pair q4_0, 3
    matmul_next_group q4_0
.Ltail:
    matmul_tail_begin q4_0
.Lpair:
    matmul_tail_pair q4_0
    matmul_next_pair
.Lsum:
    matmul_sum
    matmul_store
.Lend:
    s_endpgm
zrt_end
