// y = x times F32 rows. Arguments: matvec.inc; the weight as in the file: plain.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
zrt_kernel name=matvec_f32, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72

    matvec_begin
    matvec_plane 40, 0, s20
    plain_begin f32
    matvec_zero
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc1 .Ltail
.Lblock:
    plain_load_block f32
    plain_block_row f32, 0
    plain_block_row f32, 1
    plain_block_row f32, 2
    plain_block_row f32, 3
    plain_next_block f32
.Ltail:
    s_cmp_eq_u32 s65, 0
    s_cbranch_scc1 .Lsum
.Lstep:
    plain_tail f32, 0
    plain_tail f32, 1
    plain_tail f32, 2
    plain_tail f32, 3
    plain_next_step f32
.Lsum:
    matvec_sum
    matvec_store
.Lend:
    s_endpgm
zrt_end
