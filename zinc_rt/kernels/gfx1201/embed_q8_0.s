// EMBED of a Q8_0 table: rows dequantised. Arguments: embed.inc; packed weights: weights.inc.
.include "zrt.inc"
.include "embed.inc"
.include "weights.inc"
zrt_kernel name=embed_q8_0, buffers=3, constants=6, threads=32, vgprs=96, sgprs=72

    embed_begin
    embed_plane 40, 0, s11, q8_0_QUANTS
    embed_plane 48, s12, s13, q8_0_SCALES
    q8_0_begin
    embed_group_begin q8_0
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc0 .Ltail
    embed_group q8_0
    s_endpgm
.Ltail:
    embed_tail_begin q8_0
.Lpair:
    embed_pair q8_0
    s_cbranch_scc1 .Lpair
    s_endpgm
zrt_end
