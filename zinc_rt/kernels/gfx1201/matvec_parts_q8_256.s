// matvec_q8_256 of up to four weights of one type, in one dispatch: matvec_parts.s has the arguments, x being records
// as matvec_q8.inc has them.
.set PARTS, 4
.include "matvec_q8_256.inc"

.macro zrt_of_q8_256 type
zrt_kernel name=matvec_parts_q8_256_\type, buffers=19, constants=40, threads=128, vgprs=80, sgprs=84
    matvec_q8_256 \type, matvec_parts_begin
zrt_end
.endm
