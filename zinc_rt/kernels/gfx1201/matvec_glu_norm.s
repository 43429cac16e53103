// silu or gelu(gate) * up of two weights of one type and shape on one input, on its RMS norm: matvec_glu.inc.
.set PARTS, 2
.set NORMED, 1
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "matvec_glu.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_glu_norm_\type, buffers=12, constants=24, threads=128, vgprs=128, sgprs=80
    matvec_glu \type
zrt_end
.endm
