// RMS_NORM_FUSED_ROPE_KV_WRITE: norm_rope.inc. Grid: parts, tokens. A wave takes a part.
.set NORM_RESIDUAL, 0
.set ROPE_BUFFERS, 0
.set ROPE_CONSTANTS, 104
.include "zrt.inc"
.include "copy.inc"
.include "arith.inc"
.include "norm.inc"
.include "norm_rope.inc"

zrt_kernel name=norm_rope_kv, buffers=13, constants=11, threads=32, vgprs=NORM_VGPRS, sgprs=ROPE_SGPRS
    s_and_b32 s2, ttmp7, 0xffff
    s_mov_b32 s69, ttmp9
    norm_rope_part
    s_endpgm
zrt_end
