// moe_topk, then matvec_glu_norm of the experts that it chooses: matvec_glu.inc.
.set PARTS, 2
.set NORMED, 1
.set ROUTED, 1
.set MORE_BUFFERS, 4
.set TOPK_BUFFERS, 96
.set TOPK_CONSTANTS, 224
.include "zrt.inc"
.include "arith.inc"
.include "best.inc"
.include "moe_topk.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "matvec_glu.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_glu_routed_\type, buffers=16, constants=31, threads=128, vgprs=128, sgprs=80, lds=MOE_LDS
    matvec_glu \type
zrt_end
.endm
