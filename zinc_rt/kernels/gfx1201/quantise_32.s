// Activations in blocks of 32, for weights q8_0 and q4_0. Arguments: quantise.inc.
.include "zrt.inc"
.include "arith.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_32, buffers=3, constants=2, threads=32, vgprs=64, sgprs=74
    quantise_begin Q8_32_GROUP
    quantise_load
    q8_eights max_u32, 40
    quantise_scales half=1
    quantise_constants
    .irp step, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32_dpp v46, v43 dpp8:[\step,\step,\step,\step,\step,\step,\step,\step]
    quantise_step \step
    .endr
    q8_eights add_nc_u32, 56
    quantise_put_quants
    v_lshlrev_b32 v2, 2, v0
    s_clause 0x1
    global_store_b32 v2, v56, s[6:7] offset:Q8_SUMS
    global_store_b32 v2, v45, s[6:7] offset:Q8_D
    s_endpgm
zrt_end
