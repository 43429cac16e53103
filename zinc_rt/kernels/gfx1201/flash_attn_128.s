// FLASH_ATTN for head_dim and value_dim up to 128.
.set WIDE, 0
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

.macro zrt_of_kv suffix
zrt_kernel name=flash_attn_128\suffix, buffers=8, constants=9, threads=256, vgprs=FLASH_VGPRS+5*(KV/2), sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
.endm
