"""Forms of VOP3P, of WMMA and of VOPD."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from instruction_kernels import DPP, INLINE, LITERAL, SCALARS, KernelWriter, row_of
from instruction_lists import SPECIAL_TYPES, VOPD, compare_of, sources_of, split_mnemonics


def add_packed_cases(writer: KernelWriter, name: str, turn: Iterator[int]) -> None:
    row = row_of("VOP3P", name)
    assert row is not None, name
    count = len(row.operands) - 1
    types = SPECIAL_TYPES.get(name)
    is_float = "f16" in name and "_u16" not in name
    if types is None:
        types = ("f16",) * count if is_float and not name.startswith("v_fma_mix") else ("u32",) * count
    plain = sources_of(types)
    compare = (
        compare_of(name) if not name.startswith("v_fma_mix") else ("f32" if name.endswith("f32") else "f16x2")
    )
    initial = ("v20",) if compare == "close" else ("v9",)

    def add_case(operands: list[str], tail: str = "", stem: str = "") -> None:
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
                add_case(sources, tail)
        add_case(["-v0", "|v1|", "-|v2|"])
        add_case(["-v8", "|v9|", "-|v8|"], " op_sel_hi:[1,1,1] clamp")
        add_case(["v8", "v9", "v3"], f" op_sel_hi:[1,1,0] {DPP[next(turn) % len(DPP)]}", stem="_e64_dpp")
        return
    add_case(plain)
    add_case([*plain[:-1], SCALARS[types[-1]][0]])
    if name.startswith(("v_dot4_i32", "v_dot8_i32")):
        for signs in ("[1,0,0]", "[0,1,0]", "[1,1,0]"):
            add_case(["v4", "v5", "v6"], f" neg_lo:{signs}")
        add_case(["v4", "-5", "v6"], " neg_lo:[1,1,0]")
        return
    if name.startswith(("v_dot4_u32", "v_dot8_u32")):
        add_case(["s0", "v5", "1"])
        return
    if name.startswith("v_dot4_f32"):
        add_case(plain, " neg_lo:[0,0,1]")
        add_case(plain, " neg_hi:[0,0,1]")
        return
    ones = [1] * count
    for low, high in (([1, 0, 0], [0, 1, 1]), ([0, 1, 1], [1, 0, 0]), ([1, 1, 1], [0, 0, 0])):
        lows, highs = low[:count], high[:count]
        if name.startswith("v_dot2"):
            lows, highs = [*lows[:2], 0], [*highs[:2], 1]
        shown = f" op_sel:{lows} op_sel_hi:{highs}".replace(", ", ",")
        add_case(plain, shown if highs != ones else f" op_sel:{lows}".replace(", ", ","))
    if is_float:
        add_case(plain, f" neg_lo:{[1, 0, 1][:count]} neg_hi:{[0, 1, 1][:count]}".replace(", ", ","))
    if not name.startswith("v_dot2"):
        add_case(
            [plain[0], INLINE["f16" if is_float else "u16"][0], *plain[2:]],
            f" op_sel_hi:{[1, 0, 1][:count]}".replace(", ", ","),
        )
        add_case([*plain[:-1], LITERAL["f16" if is_float else "u32"]])
        if "shl" not in name and "shr" not in name and "mul_lo" not in name:
            add_case(plain, " clamp")
    else:
        add_case(plain, " " + DPP[next(turn) % len(DPP)], stem="_e64_dpp")


def add_wmma_cases(writer: KernelWriter, name: str) -> None:
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


def add_dual_cases(writer: KernelWriter) -> None:
    names = split_mnemonics(VOPD)
    firsts = names[:14]
    for x, y in itertools.chain(
        zip(firsts, names[3:] + names[:3], strict=False), [("add_f32", n) for n in names[14:]]
    ):
        writer.vector(
            "v_dual_" + y if y in names[14:] else "v_dual_" + x,
            f"v_dual_{select_half(x, 0, '{d0}')} :: v_dual_{select_half(y, 1, '{d1}')}",
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
        left = select_half(x, 0, "{d0}").replace("v0,", "s4,", 1)
        writer.vector(
            "v_dual_" + x,
            f"v_dual_{left} :: v_dual_{select_half(y, 1, '{d1}')}",
            size=2,
            align=2,
            compare="f32",
            initial=("v2", "v3"),
        )


def select_half(name: str, place: int, to: str) -> str:
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
