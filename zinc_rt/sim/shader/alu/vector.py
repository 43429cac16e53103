"""Common parts of the vector ALU tables: row types, sources with modifiers, results with omod and clamp.

A row is `op("f=ff", build)`: the result's type, then the sources', a letter each.

| letter | type | | letter | type |
|---|---|---|---|---|
| f | 32-bit float | | i | 32 bits |
| d | 64-bit float | | l L | 64 bits; L extends a literal's sign |
| h | 16-bit float | | s | 16 bits |
| F D H | floats that are not computed with: no mode flushes them | | | |

`build(e, *sources)` gives <W x result> of <W x source>. Sources of 16 bits follow op_sel (and operand.half).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.directed import (
    UP,
    arithmetic,
    correct_by_error,
    directed,
    narrow,
    round_directed,
    zero_if_tiny,
)
from zinc_rt.sim.shader.emit.builder import LaneBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter, selects_upper
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I1, I16, I32, I64, constant, type_bits

TYPES = {
    "f": FLOAT,
    "d": DOUBLE,
    "h": HALF,
    "F": FLOAT,
    "D": DOUBLE,
    "H": HALF,
    "i": I32,
    "s": I16,
    "l": I64,
    "L": I64,
}
INTEGERS = {HALF: I16, FLOAT: I32, DOUBLE: I64}
MANTISSA = {HALF: 10, FLOAT: 23, DOUBLE: 52}
BIAS = {HALF: 15, FLOAT: 127, DOUBLE: 1023}
MINIMUM_NORMAL = {HALF: 2.0**-14, FLOAT: 2.0**-126, DOUBLE: 2.0**-1022}
NAN = {HALF: 0xFE00, FLOAT: 0xFFC00000, DOUBLE: 0xFFF8 << 48}  # of invalid inputs, as the manual's examples show

Value: TypeAlias = ir.Value
Build = Callable[..., ir.Value]


@dataclass(frozen=True, slots=True)
class VectorOperation:
    """A table row. `saturated` replaces `build` if an integer row's clamp bit is set; without `saturated` clamp is
    ignored.
    """

    result: str
    sources: str
    build: Build
    saturated: Build | None = None
    accumulates: bool = False  # the destination is the last source too

    def __call__(self, e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            taken = operands[1:] + operands[:1] if self.accumulates else operands[1:]
            places = [*range(len(operands) - 1), 3]
            values = [
                source(e, instruction, operand, location, letter)
                for operand, location, letter in zip(taken, places, self.sources, strict=False)
            ]
            build = self.build
            if self.saturated is not None and instruction.modifier("clamp"):
                build = self.saturated
            if find_output_scale(e, instruction) is None:
                self._finish(e, instruction, operands[0], build(e, *values), values)
            else:  # it flushes tiny values to zero in every mode
                with e.flushing_results():
                    self._finish(e, instruction, operands[0], build(e, *values), values)

    def _finish(
        self, e: Emitter, instruction: Instruction, destination: Operand, value: Value, values: list[Value]
    ) -> None:
        floats = [value for value, letter in zip(values, self.sources, strict=False) if letter in "fdh"]
        value = largest_for_infinity(e, value, floats)
        set_result(e, instruction, destination, value, flushes=self.result not in "FDH")


def op(types: str, build: Build, saturated: Build | None = None, *, accumulates: bool = False) -> VectorOperation:
    result, sources = types.split("=")
    return VectorOperation(result, sources, build, saturated, accumulates)


def largest_for_infinity(e: Emitter, value: ir.Value, sources: Sequence[ir.Value]) -> ir.Value:
    """Apply FP16_OVFL: halves that overflow or divide by zero become the largest number; infinite sources stay
    infinite.
    """
    if value.type.element is not HALF or not e.mode.saturates:
        return value
    b, argument = e.b, constant(0, e.b.lanes(I1))
    for source in sources:
        argument = b.or_(argument, b.fcmp_ordered("==", absolute(e, source), float("inf")))
    infinite = b.fcmp_ordered("==", absolute(e, value), float("inf"))
    largest = b.intrinsic("llvm.copysign", value.type, constant(65504.0, value.type), value)
    return b.select(b.and_(infinite, b.not_(argument)), largest, value)


def source(e: Emitter, instruction: Instruction, operand: Operand, place: int, letter: str) -> ir.Value:
    """Return an operand as <W x TYPES[letter]>; denormals are flushed according to the float mode."""
    value = _plain_source(e, instruction, operand, place, letter)
    if letter in "fdh" and e.mode.flushes_sources(TYPES[letter]):
        return flush_denormals(e, value)
    return value


def _plain_source(e: Emitter, instruction: Instruction, operand: Operand, place: int, letter: str) -> ir.Value:
    of = TYPES[letter]
    if operand.kind is Kind.LITERAL and type_bits(of) == 64:
        literal = e.literal(operand, 64, signed=letter == "L")
        if letter in "dD":  # a literal is a double's upper half
            literal = e.b.shl(literal, 32)
        bits = e.b.splat(literal)
        return bits if of is I64 else e.modified(e.b.bitcast(bits, e.b.lanes(of)), operand)
    if type_bits(of) == 16 and operand.half is None and selects_upper(instruction, place):
        if operand.kind is Kind.VGPR:
            return e.vector(replace(operand, half=1), of)
        word = e.b.trunc(e.b.lshr(e.scalar(operand), 16), I16)
        return e.modified(e.b.splat(e.b.bitcast(word, of)), operand)
    return e.vector(operand, of)


def set_result(
    e: Emitter,
    instruction: Instruction,
    destination: Operand,
    value: ir.Value,
    *,
    flushes: bool = True,
    rounding: Rounding | None = None,
) -> None:
    """Write <W x T> with omod and clamp for floats and op_sel for 16 bits. `flushes`: flush denormals according to
    the mode. `rounding` defaults to the mode's.
    """
    of = value.type.element
    if not isinstance(of, ir.IntType) and instruction.modifiers:
        value = apply_output_modifiers(
            e, instruction, value, e.mode.rounding(of) if rounding is None else rounding
        )
    if not isinstance(of, ir.IntType) and flushes and e.mode.flushes_results(of):
        value = flush_denormals(e, value)
    if type_bits(of) == 16 and destination.half is None and selects_upper(instruction, 3):
        destination = replace(destination, half=1)
    e.set_vector(destination, value)


def apply_output_modifiers(e: Emitter, instruction: Instruction, value: ir.Value, rounding: Rounding) -> ir.Value:
    """Apply omod to the rounded result, then clamp to 0..1, which makes NaN 0 (ISA 7.2.3.1).

    With omod, a zero or a value that was denormal before scaling becomes +0. A value that becomes denormal through
    scaling becomes a zero of its sign. A value that overflowed before scaling stays infinite. A value that
    overflows through scaling becomes infinite or the largest number according to `rounding` and FP16_OVFL.
    Captured by rocjitsu's authors on gfx1201.
    """
    b, of = e.b, value.type.element
    zero = constant(0.0, value.type)
    factor = find_output_scale(e, instruction)
    if factor is not None:
        scaled = apply_in_wider_type(e, lambda e, x: e.b.fmul(x, factor), value)
        if factor < 1:  # by the exponent, before the product would be rounded
            small = b.fcmp_ordered("<", absolute(e, value), MINIMUM_NORMAL[of] / factor)
            scaled = b.select(small, b.intrinsic("llvm.copysign", value.type, zero, value), scaled)
        if rounding is not Rounding.NEAREST or (of is HALF and e.mode.saturates):
            scaled = _limited(e, value, scaled, rounding)
        tiny = b.fcmp_ordered("<", absolute(e, value), MINIMUM_NORMAL[of])
        value = b.select(tiny, zero, scaled)
    return clamp_to_one(e, instruction, value)


def find_output_scale(e: Emitter, instruction: Instruction) -> float | None:
    """Return the factor of omod; None without one. The IEEE mode of gfx11 ignores it (RDNA3 7.2.3.1)."""
    omod = instruction.modifier("omod")
    if omod is None or not isinstance(omod.value, int) or (e.rules.has_ieee_mode and e.mode.is_ieee):
        return None
    return float(omod.value) if omod.value > 0 else 1.0 / -omod.value


def _limited(e: Emitter, value: ir.Value, scaled: ir.Value, rounding: Rounding) -> ir.Value:
    """Return the largest number where a finite value became infinite, unless `rounding` rounds to that side."""
    b, inf = e.b, float("inf")
    over = b.and_(b.fcmp_ordered("==", absolute(e, scaled), inf), b.fcmp_ordered("!=", absolute(e, value), inf))
    if rounding in (Rounding.UP, Rounding.DOWN) and not (value.type.element is HALF and e.mode.saturates):
        over = b.and_(over, b.fcmp_ordered("<" if rounding is Rounding.UP else ">", value, 0.0))
    largest = b.sub(bits_of(e, scaled), 1)
    return b.select(over, b.bitcast(largest, scaled.type), scaled)


def clamp_to_one(e: Emitter, instruction: Instruction, value: ir.Value) -> ir.Value:
    """Clamp to 0..1 if the instruction's clamp bit is set. NaN becomes 0, on gfx11 only with DX10_CLAMP."""
    if not instruction.modifier("clamp"):
        return value
    zero, one = constant(0.0, value.type), constant(1.0, value.type)
    clamped = e.b.select(e.b.fcmp_ordered(">", value, zero), value, zero)
    clamped = e.b.select(e.b.fcmp_ordered("<", clamped, one), clamped, one)
    if e.rules.has_ieee_mode and not e.mode.clamps_nan:
        return e.b.select(is_nan(e, value), value, clamped)
    return clamped


# --- shared by several tables


def by_intrinsic(name: str) -> Build:
    """Return the builder of an LLVM intrinsic whose operands have one type."""
    return lambda e, *values: e.b.intrinsic(name, values[0].type, *values)


def compose(first: Build, second: Build) -> Build:
    """Return the builder of second(first(a, b), c)."""
    return lambda e, a, b, c: second(e, first(e, a, b), c)


def swap_operands(build: Build) -> Build:
    return lambda e, a, b: build(e, b, a)


def join_halves(e: Emitter, low: ir.Value, high: ir.Value) -> ir.Value:
    """Combine two <W x i16> to <W x i32>."""
    of = e.b.lanes(I32)
    return e.b.or_(e.b.zext(low, of), e.b.shl(e.b.zext(high, of), 16))


def bits_of(e: Emitter, value: ir.Value) -> ir.Value:
    return e.b.bitcast(value, e.b.lanes(INTEGERS[value.type.element]))


def quiet_nan(e: Emitter, value: ir.Value) -> ir.Value:
    """Return a quiet NaN with the sign and payload of the input."""
    bits = bits_of(e, value)
    return e.b.bitcast(e.b.or_(bits, 1 << MANTISSA[value.type.element] - 1), value.type)


def is_nan(e: Emitter, value: ir.Value) -> ir.Value:
    return e.b.fcmp_unordered("uno", value, value)


def is_signalling(e: Emitter, value: ir.Value) -> ir.Value:
    quiet = e.b.and_(bits_of(e, value), 1 << MANTISSA[value.type.element] - 1)
    return e.b.and_(is_nan(e, value), e.b.equal(quiet, 0))


def absolute(e: Emitter, value: ir.Value) -> ir.Value:
    return e.b.intrinsic("llvm.fabs", value.type, value)


def apply_in_wider_type(e: Emitter, build: Build, *values: ir.Value) -> ir.Value:
    """Compute 16-bit floats with `build` in 32 bits and round; other types directly. Correctly rounded for + - * /
    sqrt.

    With 24 bits, a result of two 11-bit numbers is never close enough to a tie for double rounding to matter.
    """
    if values[0].type.element is not HALF:
        return build(e, *values)
    wide = [e.b.fpext(value, e.b.lanes(FLOAT)) for value in values]
    return e.b.fptrunc(build(e, *wide), e.b.lanes(HALF))


def in_mode(e: Emitter, name: str, *values: ir.Value) -> ir.Value:
    """Return the builder of fadd, fsub, fmul or fma under the float mode. 16-bit operands are computed in 32 bits
    (fma: 64) and rounded.
    """
    if values[0].type.element is not HALF:
        return correct_by_error(e, name, arithmetic(e, name, *values), *values)
    rounding = e.mode.rounding(HALF)
    wide = [e.b.fpext(value, e.b.lanes(DOUBLE if name == "fma" else FLOAT)) for value in values]
    if name == "fma":  # a product of halves is exact in a double
        # The first NaN of a, b, c is the result (captured). Which one the host would keep depends on its CPU.
        product = e.b.select(is_nan(e, wide[0]), wide[0], e.b.fmul(wide[0], wide[1]))
        total = round_directed(e, "fadd", rounding, product, wide[2])
        total = e.b.select(is_nan(e, product), product, total)
        if rounding is Rounding.NEAREST:
            return narrow_in_two_steps(e, total)
        wide = [directed(e, "fptrunc", e.b.lanes(FLOAT), rounding, total)]
    else:
        wide = [round_directed(e, name, rounding, *wide)]
    return narrow(e, wide[0], HALF)


def narrow_in_two_steps(e: Emitter, value: ir.Value) -> ir.Value:
    """Convert <W x double> to <W x half>, rounded to nearest even; tiny results are flushed to 0 if the mode says
    so.
    """
    result = half_of_double(e, value)
    if not e.mode.flushes_results(HALF):
        return result
    return zero_if_tiny(e, result, half_of_double(e, e.b.fmul(value, UP)))


def half_of_double(e: Emitter, value: ir.Value) -> ir.Value:
    """Convert <W x double> to <W x half> with one rounding: to 24 bits with a sticky last bit, then as a 32-bit
    float.
    """
    b = e.b
    bits = b.bitcast(value, b.lanes(I64))
    low = constant((1 << 29) - 1, bits.type)
    sticky = b.zext(b.unequal(b.and_(bits, low), 0), bits.type)
    odd = b.or_(b.and_(bits, b.not_(low)), b.shl(sticky, 29))
    return b.fptrunc(b.fptrunc(b.bitcast(odd, value.type), b.lanes(FLOAT)), b.lanes(HALF))


def sum_to_odd(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return a + b of doubles, rounded to odd: a later rounding to fewer bits then rounds only once."""
    total = e.b.fadd(a, b)
    of_b = e.b.fsub(total, a)
    rest = e.b.fadd(e.b.fsub(a, e.b.fsub(total, of_b)), e.b.fsub(b, of_b))
    bits, zero, none = e.b.bitcast(total, e.b.lanes(I64)), constant(0.0, total.type), constant(0, e.b.lanes(I64))
    even = e.b.equal(e.b.and_(bits, 1), none)
    inexact = e.b.and_(e.b.fcmp_ordered("!=", rest, zero), even)
    inwards = e.b.xor(e.b.fcmp_ordered("<", rest, zero), e.b.fcmp_ordered("<", total, zero))
    step = e.b.select(inwards, constant(-1, bits.type), constant(1, bits.type))
    return e.b.bitcast(e.b.add(bits, e.b.select(inexact, step, none)), total.type)


def fused_multiply_add(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Return a * b + c rounded once, according to the float mode.

    16-bit floats are computed in doubles: 53 bits hold every sum whose product and addend are close enough to
    matter.
    """
    return in_mode(e, "fma", a, b, c)


def flush_denormals(e: Emitter, value: ir.Value) -> ir.Value:
    """Replace denormals by zeros of the same sign."""
    tiny = e.b.fcmp_ordered("<", absolute(e, value), MINIMUM_NORMAL[value.type.element])
    zero = e.b.intrinsic("llvm.copysign", value.type, constant(0.0, value.type), value)
    return e.b.select(tiny, zero, value)


def outline(e: Emitter, name: str, result: ir.Type, build: Build, *values: ir.Value) -> ir.Value:
    """Emit `build(e, *values)` of type `result` as a call of the module function `name`, which is emitted once."""

    def body(function: ir.Function) -> None:
        outer, e.b = e.b, LaneBuilder(function.append_basic_block("entry"), e.wave)
        e.b.ret(build(e, *function.args))
        e.b = outer

    return e.b.call(e.b.helper(name, ir.FunctionType(result, [value.type for value in values]), body), values)
