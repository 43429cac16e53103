// silu or gelu(gate) * up of two weights of one type and shape on one input: matvec_glu.inc.
.set PARTS, 2
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_glu.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_glu_\type, buffers=11, constants=24, threads=128, vgprs=96, sgprs=80
    matvec_glu \type
zrt_end
.endm
