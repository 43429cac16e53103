"""What an instruction's emit function writes its IR with: its operands as values, results to its operands.

Beside them: registers by number and EXEC (registers.py), findings and faults (reports.py), fields, constants,
blocks and helper functions (frame.py).
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Kind, Operand
from zinc_rt.sim.shader.emit.registers import Registers, Touched, UnprovenReads, register_name
from zinc_rt.sim.shader.emit.values import (
    DOUBLE,
    FLOAT,
    HALF,
    I1,
    I8,
    I16,
    I32,
    I64,
    I128,
    POINTER,
    VOID,
    inline_float,
    type_bits,
)
from zinc_rt.sim.shader.layout import EXEC_LO, NULL, TTMP0, VCC_LO

__all__ = [
    "DOUBLE",
    "FLOAT",
    "HALF",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "I128",
    "POINTER",
    "VOID",
    "Emitter",
    "NotSimulated",
    "Touched",
    "UnprovenReads",
    "inline_float",
    "register_name",
    "type_bits",
]


class NotSimulated(Exception):
    """Raised by an emit function for an instruction (or a form of it) that is not built. The sentence's subject is
    the instruction: "wants a named barrier". The wave ends with Status.ILLEGAL there if it ever comes so far."""


class Emitter(Registers):
    """One kernel's function under construction."""

    # --- sources

    def scalar(self, operand: Operand, bits: int = 32, *, signed: bool = False) -> ir.Value:
        """iN of a scalar register (tuple), constant or literal.

        16 bits are the lower half of a register. Inline float constants come in the format of `bits`. `signed`: a
        64-bit operand extends its literal's sign.
        """
        of = ir.IntType(bits)
        kind = operand.kind
        if kind in (Kind.INTEGER, Kind.IMMEDIATE, Kind.NAME):
            return self.constant(int(operand.value or 0), of)
        if kind is Kind.FLOAT:
            return self.constant(inline_float(operand.index, min(bits, 64)), of)
        if kind is Kind.LITERAL:
            value = int(operand.value or 0)
            return self.constant(value - (value >> 31 << 32) if signed else value, of)
        if kind is Kind.SPECIAL and operand.index > 127:
            return self.resize(self._special(operand), bits)
        first = operand.index + (TTMP0 if kind is Kind.TTMP else 0)
        if kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"has {operand.text} where a scalar should be")
        if operand.index == NULL and kind is Kind.SPECIAL:
            return self.constant(0, of)
        parts = [self.read_sgpr(first + at) for at in range(max(1, bits // 32))]
        return self.resize(self.join(parts), bits)

    def vector(self, operand: Operand, of: ir.Type = I32, *, signed: bool = False) -> ir.Value:
        """<W x of>: vector registers, or a scalar source in every lane; float types with their modifiers.

        `signed` is for I64: a literal's sign is extended. A DOUBLE's literal is its upper half.
        """
        bits = type_bits(of)
        if operand.kind is not Kind.VGPR:
            if of is DOUBLE and operand.kind is Kind.LITERAL:
                value = self.constant(int(operand.value or 0) << 32, I64)
            else:
                value = self.scalar(operand, max(bits, 16), signed=signed)
            value = self._modified(value, operand, of)
            return self.splat(self.resize(value, bits) if isinstance(of, ir.IntType) else value)
        words = [self.read_vgpr(operand.index + at) for at in range(max(1, bits // 32))]
        if bits < 32:
            word = words[0]
            if operand.half:
                word = self.b.lshr(word, self.constant(16, word.type))
            return self._modified(self.b.trunc(word, self.lanes(ir.IntType(bits))), operand, of)
        return self._modified(self.join(words), operand, of)

    def mask(self, operand: Operand) -> ir.Value:
        """<W x i1> of an SGPR (pair) or constant."""
        return self.b.bitcast(self.scalar(operand, self.wave), self.lanes(I1))

    def modified(self, value: ir.Value, operand: Operand) -> ir.Value:
        """`operand`'s abs, then neg, on a float value or vector, as bit operations."""
        element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
        if not (operand.negate or operand.absolute):
            return value
        width = ir.IntType(type_bits(element))
        of = ir.VectorType(width, value.type.count) if isinstance(value.type, ir.VectorType) else width
        return self._modified(self.b.bitcast(value, of), operand, element)

    def _modified(self, value: ir.Value, operand: Operand, of: ir.Type) -> ir.Value:
        """Integer bits to `of`, with the modifiers where it is a float type."""
        if isinstance(of, ir.IntType):
            return value
        sign = 1 << type_bits(of) - 1
        if operand.absolute:
            value = self.b.and_(value, self.constant(sign - 1, value.type))
        if operand.negate:
            value = self.b.xor(value, self.constant(sign, value.type))
        return self.b.bitcast(value, self.lanes(of) if isinstance(value.type, ir.VectorType) else of)

    def _special(self, operand: Operand) -> ir.Value:
        text = operand.text.split("/*")[0].strip("-|")
        match text:
            case "src_scc":
                return self.b.zext(self.scc, I32)
            case "src_vccz":
                return self.b.zext(self.is_zero(VCC_LO), I32)
            case "src_execz":
                return self.b.zext(self.is_zero(EXEC_LO), I32)
            case "src_shared_base" | "src_private_base":
                return self.field(text.removeprefix("src_"))
            case "src_shared_limit" | "src_private_limit":
                base = self.field(text.removeprefix("src_").replace("limit", "base"))
                return self.b.or_(base, self.constant(0xFFFFFFFF, I64))
            case "src_flat_scratch_base_lo":
                return self.state_field("scratch_base")
            case "src_flat_scratch_base_hi":
                return self.b.lshr(self.state_field("scratch_base"), self.constant(32, I64))
        raise NotSimulated(f"reads {text}")

    # --- results

    def set_scalar(self, operand: Operand, value: ir.Value) -> None:
        """iN (16 to 512 bits, or i1) or a float to a scalar register (tuple); `null` discards."""
        if operand.kind is Kind.SPECIAL and operand.index == NULL:
            return
        if operand.kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"writes to {operand.text}")
        if not isinstance(value.type, ir.IntType):
            value = self.b.bitcast(value, ir.IntType(type_bits(value.type)))
        first = operand.index + (TTMP0 if operand.kind is Kind.TTMP else 0)
        for at, part in enumerate(self.split(value)):
            self.write_sgpr(first + at, part)

    def set_vector(self, operand: Operand, value: ir.Value) -> None:
        """<W x T>, T of 1, 16, 32 or 64 bits, float or integer. 16 bits go to operand.half (the lower one without)
        and leave the other half; lanes outside EXEC keep theirs."""
        bits = type_bits(value.type.element)
        if not isinstance(value.type.element, ir.IntType):
            value = self.b.bitcast(value, self.lanes(ir.IntType(bits)))
        if bits == 1:
            value = self.b.zext(value, self.lanes(I32))
        elif bits == 16:
            wide = self.b.zext(value, self.lanes(I32))
            old = self.read_vgpr(operand.index, check=False) if operand.index < self.vgprs else wide
            if operand.half:
                wide = self.b.shl(wide, self.constant(16, wide.type))
            kept = self.b.and_(old, self.constant(0xFFFF if operand.half else 0xFFFF0000, old.type))
            value = self.b.or_(kept, wide)
        for at, part in enumerate(self.split(value)):
            self.write_vgpr(operand.index + at, part)

    def set_mask(self, operand: Operand, value: ir.Value) -> None:
        """<W x i1>, 0 in lanes outside EXEC, to an SGPR (pair)."""
        if self._limit is not None or not self.exec_full:
            value = self.b.and_(value, self.active_mask())
        self.set_scalar(operand, self.b.bitcast(value, self.mask_bits))
