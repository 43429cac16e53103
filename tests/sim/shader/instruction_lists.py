"""Which instructions are run, what their operands are, and how results are compared."""

from __future__ import annotations

from instruction_kernels import REGISTERS

# The mnemonics that LLM kernels plausibly need, by family; what compilers emit besides them comes after `also`.
VOP1 = """
v_nop v_mov_b32 v_readfirstlane_b32 v_cvt_f32_i32 v_cvt_f32_u32 v_cvt_i32_f32 v_cvt_u32_f32 v_cvt_f16_f32
v_cvt_f32_f16 v_cvt_f32_ubyte0 v_cvt_f32_ubyte1 v_cvt_f32_ubyte2 v_cvt_f32_ubyte3 v_cvt_f32_fp8 v_cvt_f32_bf8
v_cvt_i32_i16 v_cvt_u32_u16 v_rndne_f32 v_floor_f32 v_trunc_f32 v_ceil_f32 v_fract_f32 v_exp_f32 v_log_f32
v_rcp_f32 v_rsq_f32 v_sqrt_f32 v_frexp_mant_f32 v_frexp_exp_i32_f32 v_not_b32 v_bfrev_b32 v_clz_i32_u32
v_ctz_i32_b32 v_swap_b32 v_movrels_b32 v_movreld_b32 v_permlane64_b32 v_cvt_off_f32_i4
also v_cls_i32 v_cvt_f64_f32 v_cvt_f32_f64 v_cvt_f64_i32 v_cvt_f64_u32 v_cvt_i32_f64 v_cvt_u32_f64
v_cvt_f16_u16 v_cvt_f16_i16 v_cvt_u16_f16 v_cvt_i16_f16 v_rndne_f16 v_floor_f16 v_trunc_f16 v_ceil_f16
v_trunc_f64 v_floor_f64 v_ceil_f64 v_rndne_f64 v_fract_f64 v_frexp_mant_f64 v_frexp_exp_i32_f64 v_not_b16
v_rcp_iflag_f32
"""
VOP2 = """
v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 v_fmac_f32 v_fmaak_f32 v_fmamk_f32 v_max_num_f32 v_min_num_f32
v_add_nc_u32 v_sub_nc_u32 v_subrev_nc_u32 v_add_co_ci_u32 v_sub_co_ci_u32 v_mul_u32_u24 v_mul_i32_i24
v_and_b32 v_or_b32 v_xor_b32 v_xnor_b32 v_lshlrev_b32 v_lshrrev_b32 v_ashrrev_i32 v_lshlrev_b64 v_min_i32
v_max_i32 v_min_u32 v_max_u32 v_cndmask_b32 v_cvt_pk_rtz_f16_f32 v_pk_fmac_f16 v_add_f16 v_mul_f16 v_fmac_f16
v_max_num_f16
also v_sub_f16 v_min_num_f16 v_add_f64 v_mul_f64 v_min_num_f64 v_max_num_f64 v_subrev_co_ci_u32
v_mul_hi_u32_u24 v_mul_hi_i32_i24 v_mul_dx9_zero_f32 v_ldexp_f16
"""
VOPC = """
v_cmp_eq_u32 v_cmp_ne_u32 v_cmp_lt_u32 v_cmp_gt_u32 v_cmp_le_u32 v_cmp_ge_u32 v_cmp_lt_i32 v_cmp_gt_i32
v_cmp_eq_i32 v_cmp_ne_i32 v_cmp_le_i32 v_cmp_ge_i32 v_cmp_eq_u64 v_cmp_lt_u64 v_cmp_gt_u64 v_cmp_lt_f32
v_cmp_gt_f32 v_cmp_le_f32 v_cmp_ge_f32 v_cmp_eq_f32 v_cmp_neq_f32 v_cmp_u_f32 v_cmp_nlt_f32 v_cmp_ngt_f32
v_cmp_class_f32 v_cmpx_eq_u32 v_cmpx_lt_u32 v_cmpx_gt_u32
also v_cmp_lg_f32 v_cmp_o_f32 v_cmp_nge_f32 v_cmp_nle_f32 v_cmp_nlg_f32 v_cmp_lt_f16 v_cmp_neq_f16
v_cmp_lt_f64 v_cmp_nge_f64 v_cmp_class_f64 v_cmp_lt_i64 v_cmp_ge_i64 v_cmp_lt_i16 v_cmp_gt_u16 v_cmpx_lt_f32
v_cmpx_class_f32
"""
VOP3 = """
v_fma_f32 v_mad_u32_u24 v_mad_co_u64_u32 v_mad_u32_u16 v_mul_lo_u32 v_mul_hi_u32 v_add3_u32 v_lshl_add_u32
v_add_lshl_u32 v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_xor3_b32 v_xad_u32 v_bfe_u32 v_bfe_i32 v_bfi_b32
v_alignbit_b32 v_alignbyte_b32 v_perm_b32 v_med3_num_f32 v_max3_num_f32 v_min3_num_f32 v_maxmin_num_f32
v_max3_i32 v_med3_i32 v_lshrrev_b64 v_ashrrev_i64 v_readlane_b32 v_writelane_b32 v_mbcnt_lo_u32_b32
v_mbcnt_hi_u32_b32 v_permlane16_b32 v_permlanex16_b32 v_permlane16_var_b32 v_permlanex16_var_b32 v_ldexp_f32
v_div_scale_f32 v_div_fmas_f32 v_div_fixup_f32 v_bcnt_u32_b32 v_bfm_b32 v_add_co_u32 v_sub_co_u32
v_pack_b32_f16 v_cvt_pk_u8_f32 v_cvt_pk_norm_i16_f32 v_dot2_f16_f16 v_maximum_f32 v_minimum_f32
v_cvt_pk_fp8_f32 v_cvt_pk_i16_i32 v_fma_f16 v_mad_i32_i24
also v_fma_f64 v_ldexp_f64 v_div_scale_f64 v_div_fmas_f64 v_div_fixup_f64 v_mad_co_i64_i32 v_mul_hi_i32
v_min3_i32 v_min3_u32 v_max3_u32 v_med3_u32 v_maxmin_i32 v_minmax_u32 v_minmax_num_f32 v_add_nc_u16
v_sub_nc_u16 v_mul_lo_u16 v_mad_u16 v_mad_i32_i16 v_lshlrev_b16 v_lshrrev_b16 v_ashrrev_i16 v_min_i16
v_max_u16 v_and_b16 v_add_nc_i32 v_sub_nc_i32 v_cvt_pk_bf8_f32 v_cvt_pk_u16_u32 v_cvt_pk_i16_f32
v_subrev_co_u32 v_sad_u32 v_sad_u8 v_cndmask_b16
"""
VOP3P = """
v_pk_add_f16 v_pk_mul_f16 v_pk_fma_f16 v_pk_max_num_f16 v_pk_min_num_f16 v_pk_add_u16 v_pk_sub_u16
v_pk_mul_lo_u16 v_pk_mad_u16 v_pk_lshlrev_b16 v_pk_lshrrev_b16 v_pk_ashrrev_i16 v_dot2_f32_f16 v_dot2_f32_bf16
v_dot4_i32_iu8 v_dot4_u32_u8 v_dot8_i32_iu4 v_dot8_u32_u4 v_dot4_f32_fp8_fp8 v_fma_mix_f32 v_fma_mixlo_f16
v_fma_mixhi_f16
also v_pk_add_i16 v_pk_sub_i16 v_pk_mad_i16 v_pk_min_i16 v_pk_max_u16 v_pk_minimum_f16
"""
WMMA = """
v_wmma_f32_16x16x16_f16 v_wmma_f32_16x16x16_bf16 v_wmma_f16_16x16x16_f16 v_wmma_bf16_16x16x16_bf16
v_wmma_i32_16x16x16_iu8 v_wmma_i32_16x16x16_iu4 v_wmma_i32_16x16x32_iu4 v_wmma_f32_16x16x16_fp8_fp8
"""
VOPD = """
fmac_f32 fmaak_f32 fmamk_f32 mul_f32 add_f32 sub_f32 subrev_f32 mul_dx9_zero_f32 mov_b32 cndmask_b32
max_num_f32 min_num_f32 dot2acc_f32_f16 dot2acc_f32_bf16 add_nc_u32 lshlrev_b32 and_b32
"""
SOP1 = """
s_mov_b32 s_mov_b64 s_not_b32 s_brev_b32 s_ctz_i32_b32 s_clz_i32_u32 s_bcnt1_i32_b32 s_sext_i32_i16
s_cvt_f32_i32 s_cvt_f32_u32 s_cvt_i32_f32 s_cvt_u32_f32 s_abs_i32
also s_not_b64 s_brev_b64 s_ctz_i32_b64 s_clz_i32_u64 s_bcnt1_i32_b64 s_bcnt0_i32_b32 s_sext_i32_i8 s_cmov_b32
s_cmov_b64 s_bitset0_b32 s_bitset1_b32 s_bitset1_b64 s_cls_i32 s_quadmask_b32 s_wqm_b32 s_bitreplicate_b64_b32
s_ceil_f32 s_floor_f32 s_trunc_f32 s_rndne_f32 s_cvt_f16_f32 s_cvt_f32_f16 s_cvt_hi_f32_f16
"""
SOP2 = """
s_add_co_u32 s_add_co_ci_u32 s_sub_co_u32 s_add_co_i32 s_sub_co_i32 s_add_nc_u64 s_sub_nc_u64 s_mul_i32
s_mul_hi_u32 s_mul_u64 s_lshl_b32 s_lshr_b32 s_ashr_i32 s_lshl_b64 s_lshr_b64 s_and_b32 s_and_b64 s_or_b32
s_or_b64 s_xor_b32 s_and_not1_b32 s_or_not1_b32 s_bfe_u32 s_bfe_i32 s_bfm_b32 s_cselect_b32 s_cselect_b64
s_min_i32 s_min_u32 s_max_i32 s_max_u32 s_lshl1_add_u32 s_lshl2_add_u32 s_lshl3_add_u32 s_lshl4_add_u32
s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16 s_add_f32 s_sub_f32 s_mul_f32 s_fmac_f32
also s_sub_co_ci_u32 s_absdiff_i32 s_ashr_i64 s_xor_b64 s_nand_b32 s_nor_b32 s_xnor_b32 s_and_not1_b64
s_or_not1_b64 s_mul_hi_i32 s_bfe_u64 s_bfe_i64 s_bfm_b64 s_pack_hl_b32_b16 s_min_num_f32 s_max_num_f32
s_minimum_f32 s_maximum_f32 s_cvt_pk_rtz_f16_f32
"""
SOPC = """
s_cmp_eq_i32 s_cmp_lg_i32 s_cmp_gt_i32 s_cmp_ge_i32 s_cmp_lt_i32 s_cmp_le_i32 s_cmp_eq_u32 s_cmp_lg_u32
s_cmp_gt_u32 s_cmp_ge_u32 s_cmp_lt_u32 s_cmp_le_u32 s_cmp_eq_u64 s_cmp_lg_u64 s_bitcmp0_b32 s_bitcmp1_b32
s_cmp_lt_f32 s_cmp_gt_f32
also s_cmp_eq_f32 s_cmp_le_f32 s_cmp_ge_f32 s_cmp_lg_f32 s_cmp_o_f32 s_cmp_u_f32 s_cmp_nge_f32 s_cmp_nlg_f32
s_cmp_ngt_f32 s_cmp_nle_f32 s_cmp_neq_f32 s_cmp_nlt_f32 s_bitcmp1_b64
"""

CLOSE = ("v_dot2_f32", "v_dot2_f16", "v_dot2_bf16", "v_dot4_f32")  # summed in an order the manual leaves open
SPECIAL_TYPES: dict[str, tuple[str, ...]] = {
    "v_cmp_class_f32": ("f32", "class"), "v_cmpx_class_f32": ("f32", "class"), "v_cmp_class_f64": ("f64", "class"),
    "v_ldexp_f32": ("f32", "shift"), "v_ldexp_f64": ("f64", "shift"), "v_ldexp_f16": ("f16", "shift"),
    "v_cvt_f32_fp8": ("fp8",), "v_cvt_f32_bf8": ("fp8",), "v_cvt_pk_fp8_f32": ("f32", "f32"),
    "v_cvt_pk_u8_f32": ("f32", "u32", "u32"), "v_cvt_pk_bf8_f32": ("f32", "f32"),
    "v_bfe_u32": ("u32", "shift", "u32"), "v_bfe_i32": ("u32", "shift", "u32"),
    "v_lshl_add_u32": ("u32", "shift", "u32"), "v_add_lshl_u32": ("u32", "u32", "shift"),
    "v_lshl_or_b32": ("u32", "shift", "u32"), "v_bfm_b32": ("shift", "u32"),
    "v_alignbit_b32": ("u32", "u32", "shift"), "v_alignbyte_b32": ("u32", "u32", "shift"),
    "v_mad_co_u64_u32": ("u32", "u32", "u64"), "v_mad_co_i64_i32": ("u32", "u32", "u64"),
    "v_mad_u32_u16": ("u16", "u16", "u32"), "v_mad_i32_i16": ("u16", "u16", "u32"),
    "v_lshlrev_b64": ("shift", "u64"), "v_lshrrev_b64": ("shift", "u64"), "v_ashrrev_i64": ("shift", "u64"),
    "v_lshlrev_b16": ("shift", "u16"), "v_lshrrev_b16": ("shift", "u16"), "v_ashrrev_i16": ("shift", "u16"),
    "v_lshlrev_b32": ("shift", "u32"), "v_lshrrev_b32": ("shift", "u32"), "v_ashrrev_i32": ("shift", "u32"),
    "v_dot2_f16_f16": ("mild16", "mild16", "mild16"), "v_dot2_f32_f16": ("mild16", "mild16", "mild"),
    "v_dot2_f32_bf16": ("bf16", "bf16", "mild"), "v_dot4_f32_fp8_fp8": ("mild8", "mild8", "mild"),
    "v_cvt_i32_i16": ("u16",), "v_cvt_u32_u16": ("u16",), "v_cvt_off_f32_i4": ("u32",),
    "v_pack_b32_f16": ("f16", "f16"), "v_cndmask_b16": ("u16", "u16"),
}  # fmt: skip
_SUFFIX = {"f32": "f32", "f16": "f16", "f64": "f64", "i64": "u64", "u64": "u64", "b64": "u64", "i16": "u16",
           "u16": "u16", "b16": "u16"}  # fmt: skip


def split_mnemonics(text: str) -> list[str]:
    return [word for word in text.split() if word != "also"]


def types_of(name: str, count: int) -> tuple[str, ...]:
    """Return the type of the sources, from the last type in the mnemonic (the source of a conversion)."""
    if name in SPECIAL_TYPES:
        return SPECIAL_TYPES[name]
    return (_SUFFIX.get(name.split("_")[-1], "u32"),) * count


def compare_of(name: str) -> str:
    """Return how results are compared; NaNs from arithmetic are equal, whatever their payload."""
    if name.startswith(CLOSE):
        return "close16" if name.startswith("v_dot2_f16") else "close"
    if name.startswith(("v_mov", "v_cndmask", "v_cmp", "v_cvt_pk_fp8", "v_cvt_pk_bf8")):
        return "bits"
    if name.startswith(("v_pk_", "v_cvt_pk_rtz", "v_pack")) and name.endswith(("f16", "f32")):
        return "f16x2"
    parts = name.split("_")
    result = parts[2] if parts[1] == "cvt" else parts[-1]
    if name.startswith(("v_frexp_exp",)):
        return "bits"
    return {"f32": "f32", "f16": "f16", "f64": "f64"}.get(result, "bits")


def _next_register(kind: str, used: dict[str, int]) -> str:
    turn = used.get(kind, 0)
    used[kind] = turn + 1
    return REGISTERS[kind][turn % len(REGISTERS[kind])]


def sources_of(types: tuple[str, ...]) -> list[str]:
    used: dict[str, int] = {}
    return [_next_register(kind, used) for kind in types]
