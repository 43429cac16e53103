// EMBED of a F32 table. Arguments: embed.inc.
.include "zrt.inc"
.include "embed.inc"
zrt_kernel name=embed_f32, buffers=3, constants=6, threads=256, vgprs=8, sgprs=72

    embed_begin
    embed_plane 40, 0, s11, 0
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0
    v_cmpx_gt_u32 s10, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v1, 2, v0
    global_load_b32 v2, v1, s[40:41]
    s_wait_loadcnt 0x0
    v_lshlrev_b32 v1, 2, v0
    global_store_b32 v1, v2, s[8:9]
.Lend:
    s_endpgm
zrt_end
