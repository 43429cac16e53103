"""Inline constants and literals: the values of each type, and their text in LLVM's syntax.

A literal that equals an inline constant of its operand's type is written as lit(0x…), so that an assembler keeps
it as a literal.
"""

from __future__ import annotations

INLINE_FLOATS = {
    240: 0.5,
    241: -0.5,
    242: 1.0,
    243: -1.0,
    244: 2.0,
    245: -2.0,
    246: 4.0,
    247: -4.0,
    248: 0.15915494,
}
_F16 = (0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118)
_BF16 = (0x3F00, 0xBF00, 0x3F80, 0xBF80, 0x4000, 0xC000, 0x4080, 0xC080, 0x3E22)
_F32 = (0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000, 0x3E22F983)
_F64_HIGH = {0x3FE00000: "0.5", 0x3FF00000: "1.0", 0x40000000: "2.0", 0x40100000: "4.0"}
_F64_HIGH |= {high | 1 << 31: f"-{text}" for high, text in _F64_HIGH.items()}

# The types of a source operand: b any, i integer, f float, y bfloat; h2, y2, p2 two halves (p2 the
# same one twice). They differ only in how constants read.
TYPES = ("b32", "i64", "f64", "f16", "i16", "y16", "h2", "y2", "p2")


def format_inline_float(code: int, kind: str) -> str:
    """Return the text of source code 240 to 248 in an operand of type `kind`."""
    if kind == "i16":  # not meaningful as an integer, so LLVM prints its half-precision bits
        return f"{_F16[code - 240]:#x}"
    if code == 248 and kind in ("i64", "f64"):
        return "0.15915494309189532"
    return str(INLINE_FLOATS[code])


def format_literal(value: int, kind: str) -> str:
    """Return the text of the literal dword `value` in an operand of type `kind`."""
    if kind == "f64":  # the upper half of the constant
        return "0" if value == 0 else _F64_HIGH.get(value, f"{value:#x}")
    low = value & 0xFFFF
    shown = low if kind in ("f16", "i16") else value
    return f"lit({value:#x})" if _is_inline(value, low, kind) else f"{shown:#x}"


def format_misplaced(value: int) -> str:
    """Return the text of a constant in an operand that allows only a register."""
    if _is_small(value, 32):
        return str(value - (value >> 31 << 32))
    return str(INLINE_FLOATS[240 + _F32.index(value)]) if value in _F32 else f"{value:#x}"


def _is_inline(value: int, low: int, kind: str) -> bool:
    if kind == "i64":
        return value <= 64
    if kind == "f16":
        return _is_small(low, 16) or low in _F16
    if kind == "y16":
        return _is_small(low, 16) or low in _BF16
    if _is_small(value, 32):
        return True
    if kind == "h2":
        return value in _F16
    if kind == "y2":
        return value in _BF16
    if kind == "p2":
        return value == low << 16 | low and low in _F16
    return value in _F32


def _is_small(value: int, bits: int) -> bool:
    return value <= 64 or value >= (1 << bits) - 16
