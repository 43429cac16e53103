// MOE_DOWN_ACC's end, with a residual: expert_sum.inc.
.set EXPERT_RESIDUAL, 1
.include "zrt.inc"
.include "expert_sum.inc"

zrt_kernel name=expert_sum_residual, buffers=5, constants=2, threads=128, vgprs=16, sgprs=32
    expert_sum
zrt_end
