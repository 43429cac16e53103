// matvec_norm of q, k and v, then norm_rope_kv of them by the last workgroup of a token to finish: matvec_norm.s without its
// convolution, norm_rope.inc.
//
// Behind matvec_norm's buffers: norm_rope.inc's, then arrivals u32 [tokens], 0 before. Behind its constants: norm_rope.inc's,
// then the workgroups of a token less one.
.set PARTS, 4
.set NORMED, 1
.set MORE_BUFFERS, 14
.set NORM_RESIDUAL, 0
.set NORM_REPEATED, 1
.set ROPE_BUFFERS, 160
.set ARRIVALS, 264
.set ROPE_CONSTANTS, 432
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "plain.inc"
.include "weights.inc"
.include "copy.inc"
.include "norm.inc"
.include "last_workgroup.inc"
.include "norm_rope.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_rope_\type, buffers=34, constants=52, threads=128, vgprs=128, sgprs=80, lds=16
    matvec_parts_begin
    matvec_reciprocal
    matvec_rows \type
.Lend:
    s_mov_b32 exec_lo, -1
    s_wait_loadcnt 0x0
    s_wait_kmcnt 0x0
    s_bfe_u32 s74, ttmp8, 0x50019       // wave in the workgroup
    s_load_b32 s75, s[0:1], ROPE_CONSTANTS + 44
    s_mov_b32 s76, ttmp9
    s_wait_kmcnt 0x0
    await_last ARRIVALS, s76, s75, s74, 0, .Lfinished
    v_and_b32 v0, 31, v0
    s_mov_b32 s2, ttmp9
    s_mov_b32 s69, s74
    s_load_b96 s[76:78], s[0:1], ROPE_CONSTANTS + 20 // heads of q, of k, columns of v
    s_wait_kmcnt 0x0
    s_add_co_i32 s78, s78, 511
    s_lshr_b32 s78, s78, 9
    s_add_co_i32 s78, s78, s77
    norm_wait
    s_add_co_i32 s75, s76, s78          // parts
.Lpart:
    norm_wait
    s_cmp_ge_u32 s69, s75
    s_cbranch_scc1 .Lfinished
    norm_rope_part
    s_add_co_i32 s69, s69, 4
    s_branch .Lpart
.Lfinished:
    s_endpgm
zrt_end
.endm
