"""An operand of an instruction as data, and its text in LLVM's syntax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache


class Kind(StrEnum):
    SGPR = "sgpr"
    VGPR = "vgpr"
    TTMP = "ttmp"
    SPECIAL = "special"  # vcc, exec, m0, null, src_scc, … : `index` is the source code, `text` the name
    INTEGER = "integer"  # an inline constant, -16 to 64
    FLOAT = "float"  # an inline constant, 0.5 to -4.0 and 1/(2 pi)
    LITERAL = "literal"  # `value` is the dword that follows the instruction
    IMMEDIATE = "immediate"  # a field that holds a number
    NAME = "name"  # a field that LLVM writes as a name: hwreg(…), sendmsg(…), attr0.x, off, mrt0
    VGPRS = "vgprs"  # a list of addresses, [v1, v[4:5]]: `parts`


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: `width` counts dwords, `value` is the number of an immediate or a constant, None for
    registers.
    """

    kind: Kind
    text: str
    index: int = 0
    width: int = 1
    value: int | float | None = None
    negate: bool = False
    absolute: bool = False
    parts: tuple[Operand, ...] = ()
    half: int | None = None  # of a VGPR: 0 its lower 16 bits, 1 its upper ones, None all of it


@lru_cache(maxsize=4096)
def make_half(index: int, high: int, *, whole: bool = False, rejected_by: str = "") -> Operand:
    """Return the operand v5.l or v5.h: 16 bits of a vector register. `whole`: its text is v5, as in LLVM's fake
    true16. `rejected_by` is as in vgpr.
    """
    text = f"v{index}" if whole else f"v{index}.{'h' if high else 'l'}"
    return Operand(Kind.VGPR, text + format_invalid_register(rejected_by), index, 1, half=high)


def make_immediate(value: int, text: str | None = None) -> Operand:
    return Operand(Kind.IMMEDIATE, str(value) if text is None else text, value=value)


def name(text: str, value: int = 0) -> Operand:
    return Operand(Kind.NAME, text, value=value)


@lru_cache(maxsize=8192)
def make_vgpr(index: int, width: int = 1, rejected_by: str = "") -> Operand:
    """Return the operand v5 or v[5:8]. `rejected_by` is the register class for LLVM's remark about an invalid
    register."""
    text = f"v{index}" if width == 1 else f"v[{index}:{index + width - 1}]"
    return Operand(Kind.VGPR, text + format_invalid_register(rejected_by), index, width)


def format_invalid_register(register_class: str) -> str:
    """Return LLVM's remark for an operand that decodes but that no assembler accepts."""
    return f"/*Invalid register, operand has '{register_class}' register class*/" if register_class else ""


def make_data(index: int, width: int, half_used: int | None) -> Operand:
    """Return a vgpr that an access loads or stores; `half_used` is its row's data_half."""
    return make_vgpr(index, width) if half_used is None else make_half(index, half_used, whole=True)


@lru_cache(maxsize=8192)
def add_modifiers(operand: Operand, negate: bool, absolute: bool) -> Operand:
    """Apply float modifiers to an operand: -v1, |v1|, -|v1|, neg(1.0)."""
    text = f"|{operand.text}|" if absolute else operand.text
    if negate:
        constant = operand.kind in (Kind.INTEGER, Kind.FLOAT, Kind.LITERAL) and not text.startswith("lit(")
        text = f"neg({text})" if constant and not absolute else f"-{text}"
    return replace(operand, text=text, negate=negate, absolute=absolute)
