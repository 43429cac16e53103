"""8-bit floats: fp8 (4 exponent bits, bias 7, no infinity) and bf8 (5, bias 15); RDNA4 ISA 7.6.

NaNs, overflow and stochastic rounding are as captured on gfx1201 (docs/vector-alu.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.vector import Build, Value, is_nan, set_result, source
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import FLOAT, HALF, I16, I32, constant


def from_fp8(e: Emitter, byte: Value) -> Value:
    """Convert fp8 bytes (<W x i32> below 256) to <W x float>. The bits moved to the float's fields give 2**-120
    of the value.
    """
    b, of = e.b, byte.type
    size = b.and_(byte, 0x7F)
    moved = b.bitcast(b.shl(size, 20), b.lanes(FLOAT))
    value = b.bitcast(b.fmul(moved, 2.0**120), of)
    nan = b.equal(size, 0x7F)
    value = b.select(nan, 0xFFC00000, value)  # captured: whatever its sign
    sign = b.shl(b.and_(byte, 0x80), 24)
    return b.bitcast(b.or_(value, sign), b.lanes(FLOAT))


def from_bf8(e: Emitter, byte: Value) -> Value:
    """Convert bf8 bytes to floats. A bf8 is the upper byte of a half; NaN becomes 0xffc00000 (captured on
    silicon).
    """
    half = e.b.bitcast(e.b.trunc(e.b.shl(byte, 8), e.b.lanes(I16)), e.b.lanes(HALF))
    value = e.b.fpext(half, e.b.lanes(FLOAT))
    nan = e.b.bitcast(constant(0xFFC00000, e.b.lanes(I32)), value.type)
    return e.b.select(is_nan(e, value), nan, value)


@dataclass(frozen=True, slots=True)
class SmallFormat:
    """An 8-bit float format. Overflow becomes `overflow`, or `largest` under FP16_OVFL; NaN becomes `nan_byte`
    (captured on silicon).
    """

    mantissa: int
    bias: int
    overflow: int
    largest: int
    nan_byte: int

    @property
    def drop(self) -> int:
        """Return the number of mantissa bits to drop from a 32-bit float."""
        return 23 - self.mantissa

    def __call__(self, e: Emitter, value: Value) -> Value:
        """Convert <W x float> to bytes in <W x i32>, rounded to nearest even."""
        b, of = e.b, e.b.lanes(I32)
        size = b.and_(b.bitcast(value, of), 0x7FFFFFFF)
        mantissa, bias, drop = self.mantissa, self.bias, self.drop
        odd = b.and_(b.lshr(size, drop), 1)
        rounded = b.add(b.add(size, (1 << drop - 1) - 1), odd)
        normal = b.sub(b.lshr(rounded, drop), 127 - bias << mantissa)
        # Below the normal range the float addition rounds: its last place is the smallest denormal.
        last = 2.0 ** (1 - bias - mantissa + 23)
        magic = constant(last, value.type)
        sum_bits = b.bitcast(b.fadd(b.bitcast(size, value.type), magic), of)
        denormal = b.sub(sum_bits, b.bitcast(magic, of))
        small = b.below(size, 128 - bias << 23)
        return self._select_special(e, value, b.select(small, denormal, normal))

    def stochastic(self, e: Emitter, value: Value, random: Value) -> Value:
        """Round stochastically: add the upper bits of `random` below the kept bits, then truncate (rocjitsu's
        conversion.h).

        Values that become denormal are first truncated to 24 bits, counted from the smallest exponent of the
        format.
        """
        b, of = e.b, e.b.lanes(I32)
        size = b.and_(b.bitcast(value, of), 0x7FFFFFFF)
        field = b.lshr(size, 23)
        is_normal = b.icmp_unsigned(">", field, 0)
        significand = b.or_(b.and_(size, 0x7FFFFF), b.shl(b.zext(is_normal, of), 23))
        field = b.intrinsic("llvm.umax", of, field, constant(1, of))
        minimum = constant(128 - self.bias, of)
        short = b.intrinsic("llvm.usub.sat", of, minimum, field)
        short = b.intrinsic("llvm.umin", of, short, constant(31, of))
        added = b.add(b.lshr(significand, short), b.lshr(random, 32 - self.drop))
        units = b.lshr(added, self.drop)
        above = b.shl(b.intrinsic("llvm.usub.sat", of, field, minimum), self.mantissa)
        return self._select_special(e, value, b.add(units, above))

    def _select_special(self, e: Emitter, value: Value, result: Value) -> Value:
        """Finish a rounded magnitude as a byte: apply overflow, infinities, NaNs and the sign."""
        b = e.b
        bits = b.bitcast(value, result.type)
        size = b.and_(bits, 0x7FFFFFFF)
        beyond = self.largest if e.mode.saturates else self.overflow
        result = b.select(b.icmp_signed(">", result, self.largest), beyond, result)
        result = b.select(b.equal(size, 0x7F800000), self.overflow, result)
        sign = b.and_(b.lshr(bits, 24), 0x80)
        return b.select(b.icmp_unsigned(">", size, 0x7F800000), self.nan_byte, b.or_(result, sign))


to_fp8 = SmallFormat(mantissa=3, bias=7, overflow=0x7F, largest=0x7E, nan_byte=0xFF)
to_bf8 = SmallFormat(mantissa=2, bias=15, overflow=0x7C, largest=0x7B, nan_byte=0xFE)


def _pack_8(convert: Build) -> Build:
    def build(e: Emitter, a: Value, b: Value) -> Value:
        both = e.b.or_(convert(e, a), e.b.shl(convert(e, b), 8))
        return e.b.trunc(both, e.b.lanes(I16))

    return build


def _emit_from_8(convert: Build) -> EmitFunction:
    """Return the emitter of a conversion from 8 bits. byte_sel (op_sel with its bits reversed) selects one of four
    bytes.
    """

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            word = source(e, instruction, operands[1], 0, "i")
            select = instruction.modifier("byte_sel")
            value = select.value if select is not None and isinstance(select.value, int) else 0
            byte = e.b.and_(e.b.lshr(word, 8 * value), 0xFF)
            e.set_vector(operands[0], convert(e, byte))

    return emit


def _emit_pair_from_8(convert: Build) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        operands = instruction.operands
        both = e.b.zext(source(e, instruction, operands[1], 0, "s"), e.b.lanes(I32))
        low = e.b.and_(both, 0xFF)
        high = e.b.lshr(both, 8)
        values = [e.b.bitcast(convert(e, byte), both.type) for byte in (low, high)]
        for index, value in enumerate(values):
            e.regs.write_vgpr(operands[0].index + index, value)

    return emit


def _emit_packed_to_8(convert: Build) -> EmitFunction:
    """Return the emitter of a packed conversion, which writes 16 bits of the destination (the upper half with
    op_sel).
    """

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            values = [source(e, instruction, operand, index, "f") for index, operand in enumerate(operands[1:])]
            set_result(e, instruction, operands[0], _pack_8(convert)(e, *values))

    return emit


def _emit_stochastic(form: SmallFormat) -> EmitFunction:
    """Return the emitter of a stochastic conversion, which writes the destination byte selected by byte_sel and
    keeps the others.
    """

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            value = source(e, instruction, operands[1], 0, "f")
            random = source(e, instruction, operands[2], 1, "i")
            select = instruction.modifier("byte_sel")
            by = 8 * int(select.value) if select is not None and isinstance(select.value, int) else 0
            byte = e.b.shl(form.stochastic(e, value, random), by)
            old = e.regs.read_vgpr(operands[0].index, check=False)
            kept = 0xFFFFFFFF & ~(0xFF << by)
            e.regs.write_vgpr(operands[0].index, e.b.or_(e.b.and_(old, kept), byte), kept=kept)

    return emit


EMIT: dict[str, EmitFunction] = {
    "v_cvt_f32_fp8": _emit_from_8(from_fp8),
    "v_cvt_f32_bf8": _emit_from_8(from_bf8),
    "v_cvt_pk_f32_fp8": _emit_pair_from_8(from_fp8),
    "v_cvt_pk_f32_bf8": _emit_pair_from_8(from_bf8),
    "v_cvt_pk_fp8_f32": _emit_packed_to_8(to_fp8),
    "v_cvt_pk_bf8_f32": _emit_packed_to_8(to_bf8),
    "v_cvt_sr_fp8_f32": _emit_stochastic(to_fp8),
    "v_cvt_sr_bf8_f32": _emit_stochastic(to_bf8),
}
