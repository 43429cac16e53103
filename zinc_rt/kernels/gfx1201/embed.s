// EMBED: rows of a table of any weight type, as float32: one text, made once a weight type. Arguments: embed.inc; tables
// as in the file: plain.inc; packed ones: weights.inc.
.include "zrt.inc"
.include "embed.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
.if \type\()_QUANTS
zrt_kernel name=embed_\type, buffers=3, constants=6, threads=32, vgprs=96, sgprs=72
    embed_begin
    embed_plane 40, 0, s11, \type\()_QUANTS
    embed_plane 48, s12, s13, \type\()_SCALES
    .if \type\()_HIGH
    embed_plane 56, s14, s15, \type\()_HIGH
    .endif
    \type\()_begin
    embed_group_begin \type
    s_cmp_eq_u32 s64, 0
    s_cbranch_scc0 .Ltail
    embed_group \type
    s_endpgm
.Ltail:
    embed_tail_begin \type
.Lpair:
    embed_pair \type
    s_cbranch_scc1 .Lpair
.else
zrt_kernel name=embed_\type, buffers=3, constants=6, threads=256, vgprs=8, sgprs=72
    embed_begin
    embed_plane 40, 0, s11, 0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0
    v_cmpx_gt_u32 s10, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v1, \type\()_SHIFT, v0
    .if \type\()_SHIFT == 2
    global_load_b32 v2, v1, s[40:41]
    .else
    global_load_u16 v2, v1, s[40:41]
    .endif
    s_wait_loadcnt 0x0
    \type\()_widen 2
    v_lshlrev_b32 v1, 2, v0
    global_store_b32 v1, v2, s[8:9]
.Lend:
.endif
    s_endpgm
zrt_end
.endm
