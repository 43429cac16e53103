// MLA_FLASH_ATTN's chunks before v_b, each alone, for up to 512 latents; flash_attn_merge makes one of them.
.set WIDE, 1
.set LATENT, 1
.set PARTS, 1
.include "zrt.inc"
.include "arith.inc"
.include "flash_attn.inc"

zrt_kernel name=mla_flash_attn_parts_512, buffers=7, constants=8, threads=256, vgprs=FLASH_VGPRS, sgprs=FLASH_SGPRS, lds=LDS_BYTES
    flash_attn
zrt_end
