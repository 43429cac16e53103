"""Source and destination codes (the 8- and 9-bit operand fields) as operands.

The meaning of a code depends on the operand's type (constants.TYPES), its width, and whether constants are
allowed. A register or constant that is not allowed is decoded anyway, as in LLVM, with LLVM's remark in its text.
"""

from __future__ import annotations

from functools import lru_cache

from zinc_rt.isa.encodings import constants
from zinc_rt.isa.operand import Kind, Operand, format_invalid_register, make_vgpr

LITERAL = 255
_IMMEDIATE = "/*Invalid immediate*/"
_WIDTHS = {"i64": 2, "f64": 2}

_SPECIAL = {
    106: "vcc_lo", 107: "vcc_hi", 124: "null", 125: "m0", 126: "exec_lo", 127: "exec_hi",
    230: "src_flat_scratch_base_lo", 231: "src_flat_scratch_base_hi", 235: "src_shared_base",
    236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit", 239: "src_pops_exiting_wave_id",
    251: "src_vccz", 252: "src_execz", 253: "src_scc", 254: "src_lds_direct",
}  # fmt: skip
_SPECIAL_64 = {106: "vcc", 126: "exec"} | {
    code: text for code, text in _SPECIAL.items() if code not in (106, 107, 125, 126, 127, 231, 254)
}
_LDS_DIRECT = 254
# Sources that LLVM accepts in any operand: null and the src_ values.
_ANYWHERE = frozenset((124, *range(230, 254)))
_SCALAR = frozenset(range(254))
_CLASSES = {
    "SReg_32": _SCALAR,
    "SReg_32_XM0": _SCALAR - {125},
    "SReg_32_XEXEC": _SCALAR - {126, 127},
    "SRegOrLds_32": _SCALAR | {_LDS_DIRECT},
    "VGPR_32": _ANYWHERE | frozenset(range(256, 512)),
    "VRegOrLds_32": _ANYWHERE | frozenset(range(254, 512)),
    "VS_32_Lo128": frozenset(range(384)),
    "SReg_128_XNULL": _SCALAR,
    "SReg_256_XNULL": _SCALAR,
}


@lru_cache(maxsize=65536)
def make_source(
    code: int, kind: str, constants_ok: bool = True, width: int = 0, register_class: str = ""
) -> Operand | None:
    """Return the operand for `code`, or None if LLVM rejects it. Does not handle LITERAL: see `literal`."""
    width = width or _WIDTHS.get(kind, 1)
    if 128 <= code <= 208:
        number = code - 128 if code <= 192 else 192 - code
        return Operand(Kind.INTEGER, str(number) + ("" if constants_ok else _IMMEDIATE), code, width, number)
    if code in constants.INLINE_FLOATS:
        text = constants.format_inline_float(code, kind) + ("" if constants_ok else _IMMEDIATE)
        return Operand(Kind.FLOAT, text, code, width, constants.INLINE_FLOATS[code])
    wrong = register_class if register_class and not _accepts(code, register_class) else ""
    if code >= 256:
        return make_vgpr(code - 256, width, wrong)
    return make_scalar(code, width, wrong)


def make_literal(value: int, kind: str, constants_ok: bool = True) -> Operand:
    text = (
        constants.format_literal(value, kind) if constants_ok else constants.format_misplaced(value) + _IMMEDIATE
    )
    return Operand(Kind.LITERAL, text, LITERAL, _WIDTHS.get(kind, 1), value)


@lru_cache(maxsize=8192)
def make_scalar(code: int, width: int, rejected_by: str = "") -> Operand | None:
    """Return a scalar register of `width` dwords: an SGPR, a TTMP, or a named register.

    Tuples are aligned downwards. VCC follows s105, and tuples may extend into it.
    """
    remark = format_invalid_register(rejected_by)
    align = min(width, 4) if width != 3 else 4
    if code < 106 or 108 <= code < 124:
        kind, prefix, first, count = (
            (Kind.SGPR, "s", code, 108 if width > 2 else 106)
            if code < 106
            else (Kind.TTMP, "ttmp", code - 108, 16)
        )
        first -= first % align
        if first + width > count:
            return None
        text = f"{prefix}{first}" if width == 1 else f"{prefix}[{first}:{first + width - 1}]"
        return Operand(kind, text + remark, first, width)
    names = _SPECIAL if width == 1 else _SPECIAL_64
    if code not in names or (width > 2 and code != 124):
        return None
    return Operand(Kind.SPECIAL, names[code] + remark, code, width)


def _accepts(code: int, register_class: str) -> bool:
    accepted = _CLASSES.get(register_class)
    if accepted is not None:
        return code in accepted
    return code >= 256 or code in _ANYWHERE  # VReg_64 and the wider ones
