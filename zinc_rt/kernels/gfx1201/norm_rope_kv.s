// RMS_NORM_FUSED_ROPE_KV_WRITE: norm_rope.inc. Grid: parts, tokens. A wave takes a part.
.set NORM_RESIDUAL, 0
.set ROPE_BUFFERS, 0
.set ROPE_CONSTANTS, 104
.include "zrt.inc"
.include "copy.inc"
.include "arith.inc"
.include "norm.inc"
.include "quantise.inc"
.include "norm_rope.inc"

.macro zrt_of_kv suffix
zrt_kernel name=norm_rope_kv\suffix, buffers=13, constants=11, threads=32, vgprs=NORM_VGPRS+28*((KV+1)/2), sgprs=ROPE_SGPRS, lds=ROPE_LDS*(KV/2)
    s_and_b32 s2, ttmp7, 0xffff
    s_mov_b32 s69, ttmp9
    norm_rope_part
    s_endpgm
zrt_end
.endm
