// MLA_FLASH_ATTN before v_b, for up to 512 latents and pe of any width.
.set WIDE, 1
.set LATENT, 1
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

.macro zrt_of_kv suffix
zrt_kernel name=mla_flash_attn_512\suffix, buffers=7, constants=6, threads=256, vgprs=FLASH_VGPRS+5*(KV/2), sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
.endm
