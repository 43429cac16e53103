// Projections in canonical-1-q8 by weights in blocks of 256, the K types. Arguments: matvec_q8.inc.
.include "matvec_q8_256.inc"

.macro zrt_of_q8_256 type
zrt_kernel name=matvec_q8_256_\type, buffers=7, constants=10, threads=128, vgprs=80, sgprs=84
    matvec_q8_256 \type, matvec_begin
zrt_end
.endm
