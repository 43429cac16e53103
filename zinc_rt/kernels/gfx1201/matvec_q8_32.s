// Projections in canonical-1-q8 by weights in blocks of 32, q8_0 and q4_0. Arguments: matvec_q8.inc.
.include "matvec_q8_32.inc"

.macro zrt_of_q8_32 type
zrt_kernel name=matvec_q8_32_\type, buffers=7, constants=10, threads=128, vgprs=84, sgprs=84
    matvec_q8_32 \type, matvec_begin
zrt_end
.endm
