// matvec_q8_32 of a gate and up, silu or gelu(gate) * up: matvec_glu.inc has the arguments, x being records as
// matvec_q8.inc has them.
.set PARTS, 2
.include "matvec_q8_32.inc"
.include "matvec_glu.inc"

.macro zrt_of_q8_32 type
zrt_kernel name=matvec_glu_q8_32_\type, buffers=11, constants=24, threads=128, vgprs=84, sgprs=84
    matvec_q8_32 \type, matvec_glu_begin, matvec_glu_put
zrt_end
.endm
