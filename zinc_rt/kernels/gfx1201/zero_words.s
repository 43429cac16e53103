// words = 0, for what a plan's launches count in. buffers: words u32[n]. constants: n. Grid: n / 256, rounded up.
.include "zrt.inc"
zrt_kernel name=zero_words, buffers=1, constants=1, threads=256, vgprs=8, sgprs=16
    s_load_b96 s[4:6], s[0:1], 0x0                  // words, n
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0
    v_mov_b32 v1, 0
    s_wait_kmcnt 0x0
    v_cmpx_gt_u32 s6, v0
    s_cbranch_execz .Lend
    v_lshlrev_b32 v0, 2, v0
    global_store_b32 v0, v1, s[4:5]
.Lend:
    s_endpgm
zrt_end
