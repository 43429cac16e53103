"""Forms of VOP1, VOP2, VOPC and VOP3, and of what crosses lanes.

Operand kinds and modifiers come from the decoder's tables; what an operand means (float32, a shift count …) from
the mnemonic.
"""

from __future__ import annotations

from collections.abc import Iterator

from instruction_kernels import DPP, INLINE, LITERAL, SCALARS, KernelWriter, row_of
from instruction_lists import compare_of, sources_of, types_of

# Rows that take a carry or a mask in, a scalar out, or read lanes: written by hand below.
BY_HAND = {
    "v_nop", "v_readfirstlane_b32", "v_swap_b32", "v_movrels_b32", "v_movreld_b32", "v_permlane64_b32",
    "v_readlane_b32", "v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32", "v_permlane16_var_b32",
    "v_permlanex16_var_b32",
}  # fmt: skip


def apply_modifiers(text: str, negate: bool, absolute: bool) -> str:
    text = f"|{text}|" if absolute else text
    return f"-{text}" if negate else text


def add_vector_cases(writer: KernelWriter, encoding: str, name: str, turn: Iterator[int]) -> None:
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

    def add_case(operands: list[str], *, long_form: bool, tail: str = "", stem: str = "") -> None:
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
            saved = mask_registers(scalar_out, writer.wave)
        else:
            parts.append("{d}")
        if carry_out:
            parts.append(scalar_out)
            saved = mask_registers(scalar_out, writer.wave)
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

    plain = sources_of(types)
    if constant:
        k = LITERAL[types[0]]
        a, b = plain[0], plain[1] if len(plain) > 1 else plain[0]
        order = [a, k, b] if "fmamk" in name else [a, b, k]
        add_case(order, long_form=False)
        order[0] = SCALARS[types[0]][0]
        add_case(order, long_form=False)
        return
    if short is not None:
        add_case(plain, long_form=False)
        add_case([SCALARS[types[0]][0], *plain[1:]], long_form=False)
        add_case([INLINE[types[0]][0], *plain[1:]], long_form=False)
        add_case([INLINE[types[0]][2], *plain[1:]], long_form=False)
        add_case([LITERAL[types[0]], *plain[1:]], long_form=False)
    if long is None:
        return
    sources = len(plain)
    add_case(plain, long_form=True)
    add_case([*plain[:-1], SCALARS[types[-1]][0]], long_form=True)
    add_case([INLINE[types[0]][1], *plain[1:]], long_form=True)
    if sources > 1:
        add_case([plain[0], INLINE[types[1]][2], *plain[2:]], long_form=True)
        add_case([*plain[:-1], LITERAL[types[-1]]], long_form=True)
    if mods:
        for neg, absolute in ((mods, 0), (0, mods), (mods & 5 or mods, mods & 3)):
            absolute = absolute if can_abs else 0
            dressed = [
                apply_modifiers(s, bool(neg >> i & 1), bool(absolute >> i & 1)) for i, s in enumerate(plain)
            ]
            if dressed != plain:
                add_case(dressed, long_form=True)
    if "c" in flags and not is_compare and not name.startswith(("v_dot", "v_div_scale")):
        add_case(plain, long_form=True, tail=" clamp")
    if "o" in flags and compare in ("f32", "f16", "f64") and not name.startswith(("v_div_scale", "v_div_fixup")):
        add_case(plain, long_form=True, tail=" mul:2")
        add_case(plain, long_form=True, tail=" clamp div:2" if "c" in flags else " div:2")
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
                add_case(plain, long_form=True, tail=f" op_sel:[{','.join(shown)}]")
    if "byte0" in flags:
        for byte in (1, 2, 3):
            add_case(plain, long_form=True, tail=f" byte_sel:{byte}")
    if short is not None and "dpp" in short.flags:
        for _ in range(2 if name not in ("v_mov_b32", "v_add_f32", "v_add_nc_u32") else len(DPP)):
            add_case(plain, long_form=False, tail=" " + DPP[next(turn) % len(DPP)], stem="_dpp")
    if "dpp" in flags and long_kinds[0] != "no" and not is_exec:
        add_case(plain, long_form=True, tail=" " + DPP[next(turn) % len(DPP)], stem="_e64_dpp")


def mask_registers(mask: str, wave: int) -> tuple[str, ...]:
    if mask.startswith("vcc"):
        return ("vcc_lo",) if wave == 32 else ("vcc_lo", "vcc_hi")
    first = int(mask.removeprefix("s[").removeprefix("s").split(":")[0].rstrip("]"))
    return (f"s{first}",) if wave == 32 else (f"s{first}", f"s{first + 1}")


def add_lane_cases(writer: KernelWriter) -> None:
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
