// Router probabilities, the k best experts, their weights: moe_topk.inc. One wave a token.
.set TOPK_BUFFERS, 0
.set TOPK_CONSTANTS, 32
.include "zrt.inc"
.include "arith.inc"
.include "best.inc"
.include "moe_topk.inc"

zrt_kernel name=moe_topk, buffers=4, constants=7, threads=32, vgprs=48, sgprs=80, lds=MOE_LDS
    moe_topk_begin
    s_mov_b32 s29, s13
    moe_topk_choose
    moe_topk_store
    s_endpgm
zrt_end
