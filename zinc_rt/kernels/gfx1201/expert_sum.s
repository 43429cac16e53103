// MOE_DOWN_ACC's end: expert_sum.inc.
.set EXPERT_RESIDUAL, 0
.include "zrt.inc"
.include "expert_sum.inc"

zrt_kernel name=expert_sum, buffers=4, constants=2, threads=128, vgprs=16, sgprs=32
    expert_sum
zrt_end
