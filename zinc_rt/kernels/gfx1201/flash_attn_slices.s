// FLASH_ATTN for longer heads: up to 512 dims of the values, whatever a value and a key have.
.set WIDE, 1
.set SLICES, 1
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

zrt_kernel name=flash_attn_slices, buffers=7, constants=9, threads=256, vgprs=FLASH_VGPRS, sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
