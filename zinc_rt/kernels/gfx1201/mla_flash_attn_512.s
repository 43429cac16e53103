// MLA_FLASH_ATTN before v_b, for up to 512 latents and pe of any width.
.set WIDE, 1
.set LATENT, 1
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

zrt_kernel name=mla_flash_attn_512, buffers=7, constants=6, threads=256, vgprs=FLASH_VGPRS, sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
