// The down projections of a token's experts, and their weighted sum: matvec_expert_sum.inc.
.set REPEATED, 1
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_expert_sum.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_expert_sum_\type, buffers=8, constants=10, threads=256, vgprs=96, sgprs=80, lds=EXPERT_LDS
    matvec_expert_sum \type
zrt_end
.endm
