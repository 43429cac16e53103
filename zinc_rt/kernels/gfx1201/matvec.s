// y = x times a weight's rows, of any type: one text, made once a weight type. Arguments: matvec.inc; weights as in the
// file: plain.inc; packed ones: weights.inc.
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_\type, buffers=7, constants=10, threads=128, vgprs=96, sgprs=72
    matvec_begin
    matvec_rows \type
.Lend:
    s_endpgm
zrt_end
.endm
