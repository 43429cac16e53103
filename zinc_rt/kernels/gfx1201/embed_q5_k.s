// EMBED of a Q5_K table: rows dequantised. Arguments: embed.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "embed.inc"
.include "weights.inc"
zrt_kernel name=embed_q5_k, buffers=3, constants=6, threads=32, vgprs=96, sgprs=72

    embed_begin
    embed_plane 40, 0, s11, q5_k_QUANTS
    embed_plane 48, s12, s13, q5_k_SCALES
    embed_plane 56, s14, s15, q5_k_HIGH
    q5_k_begin
    embed_group_begin q5_k
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc0 .Ltail
    embed_group q5_k
    s_endpgm
.Ltail:
    embed_tail_begin q5_k
.Lpair:
    embed_pair q5_k
    s_cbranch_scc1 .Lpair
    s_endpgm
zrt_end
