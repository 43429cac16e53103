// FLASH_ATTN for head_dim and value_dim up to 256.
.set STEPS, 2
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

zrt_kernel name=flash_attn_256, buffers=7, constants=8, threads=256, vgprs=FLASH_VGPRS, sgprs=72, lds=LDS_BYTES
    flash_attn
zrt_end
