// y = x times BF16 rows. Arguments: matvec.inc; the weight as in the file: plain.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
zrt_kernel name=matvec_bf16, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72

    matvec_begin
    matvec_plane 40, 0, s20
    plain_begin bf16
    matvec_zero
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lblock:
    plain_load_block bf16
    plain_block_row bf16, 0
    plain_block_row bf16, 1
    plain_block_row bf16, 2
    plain_block_row bf16, 3
    plain_next_block bf16
.Ltail:
    s_cmp_eq_u32 s65, 0
    s_cbranch_scc1 .Lsum
.Lstep:
    plain_tail bf16, 0
    plain_tail bf16, 1
    plain_tail bf16, 2
    plain_tail bf16, 3
    plain_next_step bf16
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
