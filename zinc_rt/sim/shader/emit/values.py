"""LLVM types and constants."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
VOID = ir.VoidType()

FIELD_TYPES = {"u8": I8, "u32": I32, "i32": I32, "u64": I64, "i64": I64, "ptr": POINTER}
_FLOAT_BITS = {HALF: 16, FLOAT: 32, DOUBLE: 64}
_FLOAT_CODES = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_ONE_OVER_2PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_PACK = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


def type_bits(of: ir.Type) -> int:
    return of.width if isinstance(of, ir.IntType) else _FLOAT_BITS[of]


def inline_float(code: int, bits: int) -> int:
    """Return the bits of an inline float, source codes 240 to 248, in a format of 16, 32 or 64 bits."""
    if code == 248:
        return _ONE_OVER_2PI[bits]
    pack, unpack = _PACK[bits]
    return struct.unpack(unpack, struct.pack(pack, _FLOAT_CODES[code - 240]))[0]


class VectorConstant(ir.Constant):
    """A constant vector with its text cached; mostly shuffle masks, which recur. `elements` are numbers."""

    def __init__(self, of: ir.VectorType, text: str, elements: tuple[Any, ...]) -> None:
        super().__init__(of, None)
        self._text, self.elements = text, elements

    def _to_string(self) -> str:
        return f"{self.type} {self._text}"

    def _get_reference(self) -> str:
        return self._text


def splat_constant(value: ir.Constant, count: int) -> VectorConstant:
    """Return a constant vector with equal elements, in LLVM's short form."""
    text = f"splat ({value.type} {value.get_reference()})"
    return VectorConstant(ir.VectorType(value.type, count), text, (value.constant,) * count)


def constant(value: int | float, of: ir.Type = I32) -> ir.Constant:
    """Return a constant of a scalar type, or of a vector type with the same value in each lane."""
    if isinstance(of, ir.VectorType):
        return splat_constant(constant(value, of.element), of.count)
    if isinstance(of, ir.IntType):
        value = int(value) & (1 << of.width) - 1
    return ir.Constant(of, value)


def vector_of(numbers: Iterable[int], of: ir.IntType = I32) -> ir.Constant:
    """Return a constant vector with these elements."""
    return _vector(tuple(numbers), of)


@functools.lru_cache(1 << 12)
def _vector(numbers: tuple[int, ...], of: ir.IntType) -> ir.Constant:
    mask = (1 << of.width) - 1
    elements = tuple(int(number) & mask for number in numbers)
    text = ", ".join(f"{of} {element}" for element in elements)
    return VectorConstant(ir.VectorType(of, len(elements)), f"<{text}>", elements)


def mangled(of: ir.Type) -> str:
    """Return the spelling of a type in intrinsic names."""
    if isinstance(of, ir.VectorType):
        return f"v{of.count}{mangled(of.element)}"
    if isinstance(of, ir.IntType):
        return f"i{of.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64", POINTER: "p0"}[of]
