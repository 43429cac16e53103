"""Which forms of each instruction the kernels of instruction_kernels.py run.

Operand kinds and modifiers come from the decoder's tables; what an operand means (float32, a shift count …) from
the mnemonic.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from instruction_kernels import DPP, INLINE, LITERAL, REGISTERS, SCALARS, Kernel, Writer, row_of
from instruction_memory_cases import memory_cases

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
CLOSE = ("v_dot2_f32", "v_dot2_f16", "v_dot2_bf16", "v_dot4_f32")  # summed in an order the manual leaves open
_MILD = CLOSE  # and so with inputs that do not cancel or overflow
_SPECIAL_TYPES: dict[str, tuple[str, ...]] = {
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
# Rows that take a carry or a mask in, a scalar out, or read lanes: written by hand below.
BY_HAND = {
    "v_nop", "v_readfirstlane_b32", "v_swap_b32", "v_movrels_b32", "v_movreld_b32", "v_permlane64_b32",
    "v_readlane_b32", "v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32", "v_permlane16_var_b32",
    "v_permlanex16_var_b32",
}  # fmt: skip


def mnemonics(text: str) -> list[str]:
    return [word for word in text.split() if word != "also"]


def types_of(name: str, count: int) -> tuple[str, ...]:
    """What the sources are, by the mnemonic's last type (a conversion's source)."""
    if name in _SPECIAL_TYPES:
        return _SPECIAL_TYPES[name]
    return (_SUFFIX.get(name.split("_")[-1], "u32"),) * count


def compare_of(name: str) -> str:
    """How results are compared: NaNs of arithmetic are equal whatever their payload."""
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


def _register(kind: str, place: int, used: dict[str, int]) -> str:
    turn = used.get(kind, 0)
    used[kind] = turn + 1
    return REGISTERS[kind][turn % len(REGISTERS[kind])]


def _sources(types: tuple[str, ...]) -> list[str]:
    used: dict[str, int] = {}
    return [_register(kind, place, used) for place, kind in enumerate(types)]


def _dress(text: str, negate: bool, absolute: bool) -> str:
    text = f"|{text}|" if absolute else text
    return f"-{text}" if negate else text


def vector_cases(writer: Writer, encoding: str, name: str, turn: Iterator[int]) -> None:
    """e32 and e64 forms, scalar, inline and literal sources, modifiers, DPP."""
    short = row_of(encoding, name) if encoding != "VOP3" else None
    long = row_of("VOP3", name)
    row = short or long
    if row is None:
        raise SystemExit(f"{name}: no row in the decoder's tables")
    kinds = [k for k in row.operands if k not in ("no",)]
    long_kinds = [k for k in (long or row).operands if k != "no"]
    is_compare, is_exec = name.startswith("v_cmp"), name.startswith("v_cmpx")
    carry_out = any(k in ("vcc", "+MD") for k in kinds[:2]) and not is_compare
    mask_in = kinds[-1] in ("vcc", "M") and len(kinds) > 2
    constant = "K" in kinds
    count = len(kinds) - (0 if is_exec else 1) - carry_out - mask_in - constant
    types = types_of(name, count)
    size = 2 if kinds[0] == "v2" else 1
    accumulates = "fmac" in name
    compare = compare_of(name)
    flags = (long or row).flags
    mods = next((int(f[1], 16) for f in flags if len(f) == 2 and f[0] in "mn"), 0)
    can_abs = any(len(f) == 2 and f[0] == "m" for f in flags) and not name.startswith("v_dot2")
    selects = next((f for f in flags if len(f) == 5 and f[0] == "s"), None)
    initial = {"f16": ("v9",), "f64": ("v14", "v15"), "f32": ("v3",)}.get(compare, ("v7", "v6"))
    if compare in ("close", "close16"):
        initial = ("v20",) if compare == "close" else ("v26",)

    def put(operands: list[str], *, long_form: bool, tail: str = "", stem: str = "") -> None:
        mask = f"vcc{writer.suffix}"
        scalar_out = mask
        if long_form and (is_compare or carry_out):
            scalar_out = writer.mask(40)
        parts = []
        saved: tuple[str, ...] = ()
        if is_exec:
            saved = ("exec_lo",) + (("exec_hi",) if writer.wave == 64 else ())
        elif is_compare:
            parts.append(scalar_out)
            saved = _words(scalar_out, writer.wave)
        else:
            parts.append("{d}")
        if carry_out:
            parts.append(scalar_out)
            saved = _words(scalar_out, writer.wave)
        parts += operands
        if mask_in:
            parts.append(writer.mask(26) if long_form and not stem else mask)
        suffix = "" if constant else ("_e64" if long_form else "_e32")
        if stem:
            suffix = stem
        if not (short and long):
            suffix = "_e64_dpp" if stem else ""
        if not long_form and short is not None and not short.mnemonic.endswith("_e32") and not stem:
            suffix = ""
        text = f"{name}{suffix} {', '.join(parts)}{tail}"
        writer.vector(
            name,
            text,
            size=0 if is_compare else size,
            compare=compare,
            saved=saved,
            initial=("v9",) if accumulates and compare == "f16" else initial,
        )

    plain = _sources(types)
    if constant:
        k = LITERAL[types[0]]
        a, b = plain[0], plain[1] if len(plain) > 1 else plain[0]
        order = [a, k, b] if "fmamk" in name else [a, b, k]
        put(order, long_form=False)
        order[0] = SCALARS[types[0]][0]
        put(order, long_form=False)
        return
    if short is not None:
        put(plain, long_form=False)
        put([SCALARS[types[0]][0], *plain[1:]], long_form=False)
        put([INLINE[types[0]][0], *plain[1:]], long_form=False)
        put([INLINE[types[0]][2], *plain[1:]], long_form=False)
        put([LITERAL[types[0]], *plain[1:]], long_form=False)
    if long is None:
        return
    sources = len(plain)
    put(plain, long_form=True)
    put([*plain[:-1], SCALARS[types[-1]][0]], long_form=True)
    put([INLINE[types[0]][1], *plain[1:]], long_form=True)
    if sources > 1:
        put([plain[0], INLINE[types[1]][2], *plain[2:]], long_form=True)
        put([*plain[:-1], LITERAL[types[-1]]], long_form=True)
    if mods:
        for neg, absolute in ((mods, 0), (0, mods), (mods & 5 or mods, mods & 3)):
            absolute = absolute if can_abs else 0
            dressed = [_dress(s, bool(neg >> i & 1), bool(absolute >> i & 1)) for i, s in enumerate(plain)]
            if dressed != plain:
                put(dressed, long_form=True)
    if "c" in flags and not is_compare and not name.startswith(("v_dot", "v_div_scale")):
        put(plain, long_form=True, tail=" clamp")
    if "o" in flags and compare in ("f32", "f16", "f64") and not name.startswith(("v_div_scale", "v_div_fixup")):
        put(plain, long_form=True, tail=" mul:2")
        put(plain, long_form=True, tail=" clamp div:2" if "c" in flags else " div:2")
    if selects is not None:
        bits = selects[1:]
        for fill in ((1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1)):
            shown = [str(0 if what == "z" else fill[i]) for i, what in enumerate(bits) if what in "1z"]
            if types[-1] == "u32" and len(types) == 3 and types[0] == "u16":
                shown[2] = shown[3] = "0"  # 32-bit source and result
            if name in ("v_alignbit_b32", "v_alignbyte_b32"):
                shown[0] = shown[1] = shown[3] = "0"
            if name.startswith(("v_cvt_pk_fp8", "v_cvt_pk_bf8")):
                shown[0] = shown[1] = "0"
            if name == "v_pack_b32_f16":
                shown[2] = "0"
            if any(s == "1" for s in shown):
                put(plain, long_form=True, tail=f" op_sel:[{','.join(shown)}]")
    if "byte0" in flags:
        for byte in (1, 2, 3):
            put(plain, long_form=True, tail=f" byte_sel:{byte}")
    if short is not None and "dpp" in short.flags:
        for _ in range(2 if name not in ("v_mov_b32", "v_add_f32", "v_add_nc_u32") else len(DPP)):
            put(plain, long_form=False, tail=" " + DPP[next(turn) % len(DPP)], stem="_dpp")
    if "dpp" in flags and long_kinds[0] != "no" and not is_exec:
        put(plain, long_form=True, tail=" " + DPP[next(turn) % len(DPP)], stem="_e64_dpp")


def _words(mask: str, wave: int) -> tuple[str, ...]:
    if mask.startswith("vcc"):
        return ("vcc_lo",) if wave == 32 else ("vcc_lo", "vcc_hi")
    first = int(mask.removeprefix("s[").removeprefix("s").split(":")[0].rstrip("]"))
    return (f"s{first}",) if wave == 32 else (f"s{first}", f"s{first + 1}")


def lane_cases(writer: Writer) -> None:
    put = writer.vector
    put("v_nop", "v_nop", size=1)
    put("v_readfirstlane_b32", "v_readfirstlane_b32 s40, v4", size=0, saved=("s40",))
    put("v_readfirstlane_b32", "v_readfirstlane_b32 vcc_hi, v1", size=0, saved=("vcc_hi",))
    for lane in ("s15", "s0", "31", "0", "m0"):
        put(
            "v_readlane_b32",
            f"v_readlane_b32 s40, v5, {lane}",
            size=0,
            saved=("s40",),
            before=["s_mov_b32 m0, s15"],
        )
        put("v_writelane_b32", f"v_writelane_b32 {{d}}, s1, {lane}", before=["s_mov_b32 m0, s15"])
    put("v_writelane_b32", "v_writelane_b32 {d}, 0x12345678, s15")
    put("v_writelane_b32", "v_writelane_b32 {d}, -16, 3")
    put("v_swap_b32", "v_swap_b32 {d0}, {d1}", size=2)
    put("v_movrels_b32", "v_movrels_b32_e32 {d}, v4", before=["s_and_b32 m0, s24, 7"])
    put("v_movrels_b32", "v_movrels_b32_e64 {d}, v0", before=["s_and_b32 m0, s24, 7"])
    put("v_movreld_b32", "v_movreld_b32_e32 {d0}, v4", size=4, before=["s_and_b32 m0, s24, 3"])
    put("v_movreld_b32", "v_movreld_b32_e64 {d0}, s1", size=4, before=["s_and_b32 m0, s24, 3"])
    put("v_permlane64_b32", "v_permlane64_b32 {d}, v4")
    for select in ("", " op_sel:[1,0]", " op_sel:[0,1]", " op_sel:[1,1]"):
        for name in ("v_permlane16_b32", "v_permlanex16_b32"):
            put(name, f"{name} {{d}}, v4, s0, s1{select}")
            put(name.replace("_b32", "_var_b32"), f"{name.replace('_b32', '_var_b32')} {{d}}, v4, v19{select}")
    put("v_permlane16_b32", "v_permlane16_b32 {d}, v5, -1, s31")
    for name in ("v_add_f32", "v_mov_b32"):
        for pattern in DPP:
            sources = "{d}, {d}, v1" if name == "v_add_f32" else "{d}, {d}"  # the result is the source
            put(
                name,
                f"{name}_dpp {sources} {pattern}",
                initial=("v2",),
                compare="f32" if "add" in name else "bits",
            )


def packed_cases(writer: Writer, name: str, turn: Iterator[int]) -> None:
    row = row_of("VOP3P", name)
    assert row is not None, name
    count = len(row.operands) - 1
    types = _SPECIAL_TYPES.get(name)
    is_float = "f16" in name and "_u16" not in name
    if types is None:
        types = ("f16",) * count if is_float and not name.startswith("v_fma_mix") else ("u32",) * count
    plain = _sources(types)
    compare = (
        compare_of(name) if not name.startswith("v_fma_mix") else ("f32" if name.endswith("f32") else "f16x2")
    )
    initial = ("v20",) if compare == "close" else ("v9",)

    def put(operands: list[str], tail: str = "", stem: str = "") -> None:
        writer.vector(name, f"{name}{stem} {{d}}, {', '.join(operands)}{tail}", compare=compare, initial=initial)

    if name.startswith("v_fma_mix"):
        for sources in (["v0", "v1", "v2"], ["v8", "v9", "v3"], ["s4", "v8", "v9"], ["v8", "1.0", "v2"]):
            for tail in (
                "",
                " op_sel_hi:[1,1,0]",
                " op_sel:[1,0,0] op_sel_hi:[1,0,1]",
                " op_sel:[0,1,1] op_sel_hi:[1,1,1]",
            ):
                if "1.0" in sources and "op_sel:[0,1" in tail:
                    continue  # a constant has no upper half
                put(sources, tail)
        put(["-v0", "|v1|", "-|v2|"])
        put(["-v8", "|v9|", "-|v8|"], " op_sel_hi:[1,1,1] clamp")
        put(["v8", "v9", "v3"], f" op_sel_hi:[1,1,0] {DPP[next(turn) % len(DPP)]}", stem="_e64_dpp")
        return
    put(plain)
    put([*plain[:-1], SCALARS[types[-1]][0]])
    if name.startswith(("v_dot4_i32", "v_dot8_i32")):
        for signs in ("[1,0,0]", "[0,1,0]", "[1,1,0]"):
            put(["v4", "v5", "v6"], f" neg_lo:{signs}")
        put(["v4", "-5", "v6"], " neg_lo:[1,1,0]")
        return
    if name.startswith(("v_dot4_u32", "v_dot8_u32")):
        put(["s0", "v5", "1"])
        return
    if name.startswith("v_dot4_f32"):
        put(plain, " neg_lo:[0,0,1]")
        put(plain, " neg_hi:[0,0,1]")
        return
    ones = [1] * count
    for low, high in (([1, 0, 0], [0, 1, 1]), ([0, 1, 1], [1, 0, 0]), ([1, 1, 1], [0, 0, 0])):
        lows, highs = low[:count], high[:count]
        if name.startswith("v_dot2"):
            lows, highs = [*lows[:2], 0], [*highs[:2], 1]
        shown = f" op_sel:{lows} op_sel_hi:{highs}".replace(", ", ",")
        put(plain, shown if highs != ones else f" op_sel:{lows}".replace(", ", ","))
    if is_float:
        put(plain, f" neg_lo:{[1, 0, 1][:count]} neg_hi:{[0, 1, 1][:count]}".replace(", ", ","))
    if not name.startswith("v_dot2"):
        put(
            [plain[0], INLINE["f16" if is_float else "u16"][0], *plain[2:]],
            f" op_sel_hi:{[1, 0, 1][:count]}".replace(", ", ","),
        )
        put([*plain[:-1], LITERAL["f16" if is_float else "u32"]])
        if "shl" not in name and "shr" not in name and "mul_lo" not in name:
            put(plain, " clamp")
    else:
        put(plain, " " + DPP[next(turn) % len(DPP)], stem="_e64_dpp")


def wmma_cases(writer: Writer, name: str) -> None:
    row = row_of("VOP3P", name)
    assert row is not None, name
    widths = []
    for kind in row.operands:
        parts = kind[1:].split("/")
        widths.append(int(parts[0] if writer.wave == 32 else parts[-1]))
    integer = "_iu" in name
    a, b = ("v4", "v12") if integer else ("v38", "v40") if name.endswith("_bf16") else ("v24", "v28")
    if "fp8" in name:
        a, b = "v34", "v36"
        widths[1] = widths[2] = 1 if writer.wave == 64 else 2
    first_a, first_b = int(a[1:]), int(b[1:])
    left = f"v[{first_a}:{first_a + widths[1] - 1}]" if widths[1] > 1 else f"v{first_a}"
    right = f"v[{first_b}:{first_b + widths[2] - 1}]" if widths[2] > 1 else f"v{first_b}"
    compare = "bits" if integer else {"f32": "wide", "f16": "wide16", "bf16": "widebf16"}[name.split("_")[2]]
    start = ("v7", "v6", "v5") if integer else ("v20", "v32", "v33") if compare == "wide" else ("v24", "v26")
    tails = ["", " neg_lo:[1,0,0]", " neg_lo:[1,1,0]", " neg_lo:[1,1,0] clamp"] if integer else [""]
    if not integer and "fp8" not in name:
        tails += [" neg_lo:[1,0,0] neg_hi:[0,1,0]", " neg_lo:[0,0,1]", " neg_hi:[0,0,1]"]
    for tail in tails:
        writer.vector(
            name,
            f"{name} {{d}}, {left}, {right}, {{d}}{tail}",
            size=widths[0],
            compare=compare,
            initial=start,
            full=True,
        )
    inline = "5" if integer else "1.0"
    writer.vector(
        name, f"{name} {{d}}, {left}, {right}, {inline}", size=widths[0], compare=compare, initial=start, full=True
    )


_VOPD_SOURCES = {  # x and y: source 0 and 1, from different banks
    "f32": (("v0", "v3"), ("v1", "v2")), "u32": (("v4", "v7"), ("v5", "v6")),
    "f16": (("v24", "v27"), ("v25", "v26")),
    "bf16": (("v38", "v39"), ("v23", "v38")), "shift": (("v18", "v7"), ("v18", "v6")),
}  # fmt: skip


def dual_cases(writer: Writer) -> None:
    names = mnemonics(VOPD)
    firsts = names[:14]
    for x, y in itertools.chain(
        zip(firsts, names[3:] + names[:3], strict=False), [("add_f32", n) for n in names[14:]]
    ):
        writer.vector(
            "v_dual_" + y if y in names[14:] else "v_dual_" + x,
            f"v_dual_{_half(x, 0, '{d0}')} :: v_dual_{_half(y, 1, '{d1}')}",
            size=2,
            align=2,
            compare="close" if "dot2" in x + y else "f32",
            initial=("v20", "v32") if "dot2" in x + y else ("v2", "v3"),
        )
    for x, y in (
        ("mov_b32", "add_f32"),
        ("mul_f32", "add_nc_u32"),
        ("fmac_f32", "fmac_f32"),
        ("mul_f32", "cndmask_b32"),
    ):
        left = _half(x, 0, "{d0}").replace("v0,", "s4,", 1)
        writer.vector(
            "v_dual_" + x,
            f"v_dual_{left} :: v_dual_{_half(y, 1, '{d1}')}",
            size=2,
            align=2,
            compare="f32",
            initial=("v2", "v3"),
        )


def _half(name: str, place: int, to: str) -> str:
    kind = "f16" if name.endswith("f32_f16") else "bf16" if name.endswith("bf16") else name[-3:]
    kind = {"b32": "u32"}.get(kind, kind)
    kind = "shift" if name == "lshlrev_b32" else kind
    a, b = _VOPD_SOURCES[kind][place]
    if name == "mov_b32":
        return f"{name} {to}, {a}"
    if name == "fmaak_f32":
        return f"{name} {to}, {a}, {b}, 0x3fa00001"
    if name == "fmamk_f32":
        return f"{name} {to}, {a}, 0x3fa00001, {b}"
    return f"{name} {to}, {a}, {b}"


# --- scalar --------------------------------------------------------------------------------------------------

_SOP2_ODD = {
    **dict.fromkeys(("s_lshl_b32", "s_lshr_b32", "s_ashr_i32"), ("s0", "s14")),
    **dict.fromkeys(("s_lshl_b64", "s_lshr_b64", "s_ashr_i64"), ("s[8:9]", "s14")),
    **dict.fromkeys(("s_bfe_u32", "s_bfe_i32"), ("s0", "s30")),
    **dict.fromkeys(("s_bfe_u64", "s_bfe_i64"), ("s[8:9]", "s30")),
    "s_bfm_b32": ("s14", "s15"),
}
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


def _scalar_types(name: str) -> tuple[str, str, bool]:
    """Two source registers, and whether the result is a pair."""
    if name in _SOP2_ODD:
        a, b = _SOP2_ODD[name]
        return a, b, name.endswith("64")
    kind = name.split("_")[-1]
    if kind == "f32" and not name.startswith(("s_cvt_pk",)):
        return "s4", "s5", False
    if name == "s_cvt_pk_rtz_f16_f32":
        return "s4", "s5", False
    if kind == "f16":
        return "s12", "s13", False
    if kind in ("b64", "u64", "i64"):
        return "s[8:9]", "s[16:17]", True
    return "s0", "s1", False


def scalar_cases(writer: Writer) -> None:
    for name in mnemonics(SOP1):
        parts = name.split("_")
        source, _, pair = _scalar_types(name)
        if name.startswith("s_cvt_hi"):
            source = "s12"
        if parts[1] in ("ctz", "clz", "bcnt1", "bcnt0", "cls"):
            pair = False
        if name == "s_bitreplicate_b64_b32":
            source, pair = "s0", True
        if "bitset" in name:
            source, pair = "s14", name.endswith("64")
        to = "s[40:41]" if pair else "s40"
        saved = ("s40", "s41", "scc") if pair else ("s40", "scc")
        compare = (
            "f32"
            if name.startswith(("s_cvt_f32", "s_cvt_hi", "s_ceil", "s_floor", "s_trunc", "s_rndne"))
            else "bits"
        )
        if name == "s_cvt_f16_f32":
            compare = "f16"
        wide = source.startswith("s[")
        for text in (
            source,
            "-1" if "f32" not in name.split("_")[-1] else "-2.0",
            "64",
            "0x80000003" if "f" not in parts[-1] else "0x7f7fffff",
        ):
            writer.scalar(name, f"{name} {to}, {text}", saved=saved, compare=compare)
        if not wide:
            writer.scalar(
                name,
                f"{name} {to}, exec_hi" if writer.wave == 64 else f"{name} {to}, vcc_hi",
                saved=saved,
                compare=compare,
                before=["s_mov_b32 vcc_hi, s1"],
            )
    for name in mnemonics(SOP2):
        a, b, pair = _scalar_types(name)
        if name == "s_bfm_b64":
            a, b = "s14", "s15"
        to = "s[40:41]" if pair or name == "s_bfm_b64" else "s40"
        pair = to != "s40"
        saved = ("s40", "s41", "scc") if pair else ("s40", "scc")
        compare = (
            "f32" if name.endswith("f32") and "cvt_pk" not in name else "f16x2" if "cvt_pk" in name else "bits"
        )
        literal = "0x3fa00001" if "f32" in name else "0x80010023"
        for left, right in (
            (a, b),
            (a, "-16" if "f32" not in name else "-4.0"),
            ("64" if "f32" not in name else "0.5", b),
            (a, literal),
        ):
            writer.scalar(name, f"{name} {to}, {left}, {right}", saved=saved, compare=compare)
    for name in mnemonics(SOPC):
        a, b, _ = _scalar_types(name)
        if "bitcmp" in name:
            b = "s14"
        for left, right in (
            (a, b),
            (a, "64" if "f32" not in name else "0.5"),
            ("-1" if "f32" not in name else "-2.0", b),
            (a, "s0" if "bitcmp" in name else a),
        ):
            writer.scalar(name, f"{name} {left}, {right}", saved=("scc",))
    for value in ("0x1234", "0x8001", "0"):
        for name in ("s_movk_i32", "s_addk_co_i32", "s_mulk_i32", "s_cmovk_i32"):
            writer.scalar(name, f"{name} s40, {value}")
    bits = writer.wave
    for name in ("and", "or", "and_not1", "xor", "nand", "or_not1", "and_not0"):
        to = "s40" if bits == 32 else "s[40:41]"
        source = "s0" if bits == 32 else "s[8:9]"
        mask = f"s_mov_b{bits} exec{writer.suffix}, {writer.mask(20)}"
        saved = ("s40", "exec_lo", "scc") if bits == 32 else ("s40", "s41", "exec_lo", "exec_hi", "scc")
        writer.scalar(
            f"s_{name}_saveexec_b{bits}", f"s_{name}_saveexec_b{bits} {to}, {source}", before=[mask], saved=saved
        )
    writer.scalar("s_movrels_b32", "s_movrels_b32 s40, s0", before=["s_and_b32 m0, s24, 15"])
    writer.scalar(
        "s_movrels_b64", "s_movrels_b64 s[40:41], s[0:1]", before=["s_and_b32 m0, s24, 14"], saved=("s40", "s41")
    )
    writer.scalar("s_movreld_b32", "s_movreld_b32 s40, s1", before=["s_and_b32 m0, s24, 1"], saved=("s40", "s41"))
    writer.scalar("s_getreg_b32", "s_getreg_b32 s40, hwreg(HW_REG_WAVE_MODE, 0, 8)")
    writer.scalar("s_setreg_b32", "s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), s40", before=["s_mov_b32 s40, 15"])
    writer.scalar("s_setreg_imm32_b32", "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), 15")
    writer.scalar("s_round_mode", "s_round_mode 0", saved=("s40",))
    writer.scalar("s_denorm_mode", "s_denorm_mode 15", saved=("s40",))
    control_cases(writer)


_QUIET = (
    "s_nop 3", "s_wait_loadcnt 0", "s_wait_storecnt 0", "s_wait_dscnt 0", "s_wait_kmcnt 0", "s_wait_expcnt 0",
    "s_wait_loadcnt_dscnt 0", "s_wait_storecnt_dscnt 0", "s_wait_alu 0xfffe", "s_wait_idle",
    "s_delay_alu instid0(VALU_DEP_1)", "s_sleep 1", "s_clause 0x0", "s_setprio 1", "s_icache_inv", "s_version 0",
    "s_sethalt 0", "s_dcache_inv", "s_barrier_signal -1\ns_barrier_wait -1",
    "s_barrier_signal_isfirst -1\ns_barrier_wait -1",
    "s_barrier_signal -1\ns_nop 0\ns_barrier_wait -1", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)",
    "s_prefetch_inst s[96:97], 0, null, 1", "s_prefetch_data s[96:97], 0, null, 1",
)  # fmt: skip


def control_cases(writer: Writer) -> None:
    """Each branch both ways: s40 says which way it went."""
    vcc = f"s_mov_b{writer.wave} vcc{writer.suffix}"
    execute = f"s_mov_b{writer.wave} exec{writer.suffix}"
    conditions = {
        "scc0": [f"s_cmp_eq_u32 s{25}, 1"], "scc1": [f"s_cmp_eq_u32 s{25}, 1"],
        "vccz": [f"{vcc}, {writer.mask(20)}"], "vccnz": [f"{vcc}, {writer.mask(20)}"],
        "execz": [f"{execute}, {writer.mask(20)}"], "execnz": [f"{execute}, {writer.mask(20)}"],
    }  # fmt: skip
    for number, (name, before) in enumerate(conditions.items()):
        label = f"L{number}"
        writer.scalar(
            f"s_cbranch_{name}",
            f"s_cbranch_{name} {label}\ns_add_co_i32 s40, s40, 5\n{label}:",
            before=before,
            saved=("s40", "exec_lo"),
        )
    writer.scalar("s_branch", "s_branch L20\ns_mov_b32 s40, 0\nL20:")
    writer.scalar(
        "s_getpc_b64",
        "s_getpc_b64 s[40:41]\nL21:\ns_getpc_b64 s[42:43]\nL22:\ns_sub_co_u32 s40, s42, s40",
        saved=("s40",),
    )
    call = "s_getpc_b64 s[40:41]\nL23:\ns_add_co_u32 s40, s40, L24-L23\ns_add_co_ci_u32 s41, s41, 0\n"
    after = "s_mov_b32 s42, 7\ns_branch L25\nL24:\ns_mov_b32 s43, 9\n"
    writer.scalar(
        "s_swappc_b64",
        f"{call}s_swappc_b64 s[44:45], s[40:41]\n{after}s_setpc_b64 s[44:45]\nL25:",
        saved=("s42", "s43"),
    )
    call = "s_getpc_b64 s[40:41]\nL26:\ns_add_co_u32 s40, s40, L27-L26\ns_add_co_ci_u32 s41, s41, 0\n"
    writer.scalar(
        "s_setpc_b64", f"{call}s_mov_b32 s42, 1\ns_setpc_b64 s[40:41]\ns_mov_b32 s42, 2\nL27:", saved=("s42",)
    )
    for text in _QUIET:
        writer.scalar(text.split()[0], text)


class Splitter(Writer):
    """Writes each mnemonic's first form and one of the others to `core`, all the rest to `more`."""

    def __init__(self, name: str, wave: int, *, memory: bool = False) -> None:
        super().__init__(name, wave, memory=memory)
        self.core = Writer(f"{name}.core", wave, memory=memory)
        self.more = Writer(f"{name}.more", wave, memory=memory)
        self.seen: Counter[str] = Counter()
        self.mnemonics = 0

    def _pick(self, mnemonic: str) -> Writer:
        number = self.seen[mnemonic]
        self.mnemonics += not number
        self.seen[mnemonic] += 1
        if self.wave == 64:  # mostly the same code in the engine, and slow to compile
            core = number == 0 and self.mnemonics % (4 if self.memory else 2) == 0
        else:
            core = number in (0, 1 + self.mnemonics * 5 % 13) if not self.memory else number == 0
        return self.core if core else self.more

    def vector(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick(mnemonic).vector(mnemonic, text, **how)

    def scalar(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick(mnemonic).scalar(mnemonic, text, **how)


def all_kernels() -> list[Kernel]:
    """`core` ones first in each wave size; names say which they are."""
    found: list[Kernel] = []
    for wave in (32, 64):
        turn = itertools.count()
        vector = Splitter(f"vector{wave}", wave)
        for family, text in (("VOP1", VOP1), ("VOP2", VOP2), ("VOPC", VOPC), ("VOP3", VOP3)):
            for name in mnemonics(text):
                if name not in BY_HAND:
                    vector_cases(vector, family, name, turn)
        lane_cases(vector)
        for name in mnemonics(VOP3P):
            packed_cases(vector, name, turn)
        matrix = Splitter(f"wmma{wave}", wave)
        for name in mnemonics(WMMA):
            wmma_cases(matrix, name)
        dual = Splitter(f"vopd{wave}", wave)
        if wave == 32:
            dual_cases(dual)
        scalar = Splitter(f"scalar{wave}", wave)
        scalar_cases(scalar)
        memory = Splitter(f"memory{wave}", wave, memory=True)
        memory_cases(memory)
        for splitter in (vector, matrix, dual, scalar, memory):
            found += splitter.core.kernels + splitter.more.kernels
    return found
