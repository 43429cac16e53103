// matvec of the gated norm of an input: matvec_gated.inc.
.set LDS_X, 1
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_gated.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_gated_\type, buffers=9, constants=12, threads=128, vgprs=96, sgprs=72, lds=GATED_LDS
    matvec_gated_input
    matvec_gated_begin
    matvec_rows \type
.Lend:
    s_endpgm
zrt_end
.endm
