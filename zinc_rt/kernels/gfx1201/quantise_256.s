// Activations in blocks of 256, for weights of the K types. Arguments: quantise.inc.
.include "zrt.inc"
.include "arith.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_256, buffers=3, constants=2, threads=32, vgprs=64, sgprs=74
    quantise_begin Q8_256_GROUP
    quantise_load
    .irp pair, 0, 1, 2, 3
    v_max_u32 v[40+2*\pair], v[40+2*\pair], v[41+2*\pair]
    .endr
    q8_fours max_u32, 40, 42, 44, 46
    q8_apart max_u32, 40, 41
    quantise_scales half=0
    quantise_constants
    .irp step, 0, 1, 2, 3, 4, 5, 6, 7
    .set PAIR, \step / 2
    v_mov_b32_dpp v46, v43 quad_perm:[PAIR,PAIR,PAIR,PAIR] row_mask:0xf bank_mask:0xf
    quantise_step \step
    .endr
    q8_fours add_nc_u32, 56, 58, 60, 62
    q8_fours add_nc_u32, 57, 59, 61, 63
    v_mov_b32 v2, 0xffff
    v_and_b32 v56, v2, v56
    v_lshl_or_b32 v56, v57, 16, v56
    quantise_put_quants
    v_lshlrev_b32 v2, 2, v0
    global_store_b32 v2, v56, s[6:7] offset:Q8_SUMS
    s_mov_b32 exec_lo, 0xf
    global_store_b32 v2, v45, s[6:7] offset:Q8_D
    s_endpgm
zrt_end
