// y = x times BF16 rows, four tokens at a time. Arguments: matmul.inc; the weight as in the file: plain.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matmul.inc"
.include "matvec.inc"
.include "plain.inc"
zrt_kernel name=matmul_bf16, buffers=6, constants=8, threads=128, vgprs=102, sgprs=80

    matmul_begin
    matmul_plane 40, 0, s18
    matmul_plain_begin bf16
    matmul_zero SUMS, 32
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lblock:
    matmul_plain_pair bf16
.Ltail:
    s_cmp_eq_u32 s65, 0
    s_cbranch_scc1 .Lsum
.Lstep:
    matmul_plain_tail bf16, 0
    matmul_plain_tail bf16, 1
    matmul_plain_tail bf16, 2
    matmul_plain_tail bf16, 3
    plain_next_step bf16
.Lsum:
    matmul_sum
    matmul_store
.Lend:
    s_endpgm
zrt_end
