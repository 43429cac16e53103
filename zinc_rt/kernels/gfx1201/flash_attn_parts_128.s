// FLASH_ATTN's chunks, each alone, for head_dim and value_dim up to 128, and their merge by the last workgroup.
.set WIDE, 0
.set PARTS, 1
.include "zrt.inc"
.include "arith.inc"
.include "last_workgroup.inc"
.include "flash_attn_merge.inc"
.include "flash_attn.inc"

.macro zrt_of_kv suffix
zrt_kernel name=flash_attn_parts_128\suffix, buffers=11, constants=12, threads=256, vgprs=FLASH_VGPRS+5*(KV/2), sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
.endm
