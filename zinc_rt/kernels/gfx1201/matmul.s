// y = x times a weight's rows, four tokens at a time: one text, made once a weight type. Arguments: matmul.inc; weights
// as in the file: plain.inc; packed ones: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matmul.inc"
.include "matvec.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matmul_\type, buffers=6, constants=8, threads=128, vgprs=102, sgprs=80
    matmul_begin
    matmul_plane 40, 0, s18
.if \type\()_QUANTS
    matmul_plane 48, s19, s20
    .if \type\()_HIGH
    matmul_plane 56, s21, s22
    .endif
    \type\()_begin
    v_lshlrev_b32 v1, 4, v0
    matvec_zero SUMS, 32
    s_lshr_b32 s64, s17, GROUP_SHIFT
    s_cbranch_scc0 .Ltail
.Lgroup:
    matmul_load_group \type
    matmul_pair \type, 0
    matmul_pair \type, 1
    matmul_pair \type, 2
    matmul_pair \type, 3
    matvec_next_group \type
.Ltail:
    matmul_tail_begin \type
.Lpair:
    matmul_tail_pair \type
    matmul_next_pair
.else
    matmul_plain_begin \type
    matvec_zero SUMS, 32
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lblock:
    matmul_plain_pair \type
.Ltail:
    s_cmp_eq_u32 s65, 0
    s_cbranch_scc1 .Lsum
.Lstep:
    matmul_plain_tail \type, 0
    matmul_plain_tail \type, 1
    matmul_plain_tail \type, 2
    matmul_plain_tail \type, 3
    plain_next_step \type
.endif
.Lsum:
    matmul_sum
    matmul_store
.Lend:
    s_endpgm
zrt_end
.endm
