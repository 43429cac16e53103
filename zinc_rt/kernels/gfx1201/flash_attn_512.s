// FLASH_ATTN for head_dim and value_dim up to 512.
.set WIDE, 1
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

zrt_kernel name=flash_attn_512, buffers=7, constants=9, threads=256, vgprs=FLASH_VGPRS, sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
