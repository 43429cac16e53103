"""Float operations of the scalar ALU. Source: RDNA4 ISA guide, 16.1, 16.3, 16.4.

Rounding and denormals follow MODE; the choice of NaN result is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.sim.shader.alu.directed import correct_by_error, directed, from_integer, narrow, round_directed
from zinc_rt.sim.shader.alu.scalar import unary
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I1, I16, I32, constant

EMIT: dict[str, EmitFunction] = {}

_ORDERED = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "lg": "!=", "ge": ">=", "o": "ord"}
_UNORDERED = {"u": "uno", "nge": "<", "nlg": "==", "ngt": "<=", "nle": ">", "neq": "!=", "nlt": ">="}


def float_source(e: Emitter, operand: Operand, of: ir.Type) -> ir.Value:
    """Return a float source according to the float mode: denormals may be flushed to zero."""
    value = e.b.bitcast(e.scalar(operand, 16 if of is HALF else 32), of)
    return _flush_denormal(e, value) if e.mode.flushes_sources(of) else value


def _flush_denormal(e: Emitter, value: ir.Value) -> ir.Value:
    """Replace a denormal by a zero of its sign."""
    exponent, sign, bits = (0x7C00, 0x8000, I16) if value.type is HALF else (0x7F800000, 0x80000000, I32)
    whole = e.b.bitcast(value, bits)
    zero = e.b.and_(whole, sign)
    return e.b.bitcast(e.b.select(e.b.has(whole, exponent), whole, zero), value.type)


def _result(e: Emitter, i: Instruction, value: ir.Value, *, flushes: bool = True) -> None:
    flushes = flushes and not isinstance(value.type, ir.IntType) and e.mode.flushes_results(value.type)
    e.set_scalar(i.operands[0], _flush_denormal(e, value) if flushes else value)


def _largest_for_infinity(e: Emitter, value: ir.Value, sources: list[ir.Value]) -> ir.Value:
    """Apply FP16_OVFL: a half that overflows becomes the largest number; an infinite source stays infinite."""
    if value.type is not HALF or not e.mode.saturates:
        return value
    b, argument = e.b, ir.Constant(I1, 0)
    for source in sources:
        exponent, whole = (0x7C00, I16) if source.type is HALF else (0x7F800000, I32)
        size = b.and_(b.bitcast(source, whole), 0x7FFF if source.type is HALF else 0x7FFFFFFF)
        argument = b.or_(argument, b.equal(size, exponent))
    bits = b.bitcast(value, I16)
    infinite = b.and_(b.equal(b.and_(bits, 0x7FFF), 0x7C00), b.not_(argument))
    return b.bitcast(b.select(infinite, b.sub(bits, 1), bits), HALF)


def in_mode(name: str) -> Callable[..., ir.Value]:
    """Return the builder of a scalar fadd, fsub, fmul or fma. Halves are computed in 32 bits, then rounded."""

    def build(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
        rounding = e.mode.rounding(a.type)
        if a.type is not HALF:
            return correct_by_error(e, name, round_directed(e, name, rounding, a, b), a, b)
        if rounding is Rounding.NEAREST and not e.mode.flushes_results(HALF):
            return round_directed(e, name, rounding, a, b)
        wide = [e.b.fpext(value, FLOAT) for value in (a, b)]
        return narrow(e, round_directed(e, name, rounding, *wide), HALF)

    return build


def _floats(
    function: Callable[..., ir.Value], of: ir.Type, accumulates: bool = False, *, flushes: bool = True
) -> EmitFunction:
    """Return the emitter of a float operation. With `accumulates` the destination is the last source. With
    `flushes` denormal results are flushed according to the mode.

    16-bit results clear the upper half.
    """

    def emit(e: Emitter, i: Instruction) -> None:
        operands = i.operands[1:] + i.operands[:1] if accumulates else i.operands[1:]
        sources = [float_source(e, operand, of) for operand in operands]
        _result(e, i, _largest_for_infinity(e, function(e, *sources), sources), flushes=flushes)

    return emit


def _fused(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    rounding = e.mode.rounding(a.type)
    if a.type is not HALF:
        return correct_by_error(e, "fma", round_directed(e, "fma", rounding, a, b, c), a, b, c)
    if rounding is Rounding.NEAREST:
        return fused_half(e, a, b, c)
    wide = [e.b.fpext(value, DOUBLE) for value in (a, b, c)]
    total = round_directed(e, "fadd", rounding, e.b.fmul(wide[0], wide[1]), wide[2])
    return narrow(e, directed(e, "fptrunc", FLOAT, rounding, total), HALF)


def fused_half(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emit an fma of halves with one rounding; LLVM's fma calls a library function that is not available.

    A product of halves is exact in f32. The sum is rounded to odd there, so that rounding it to half is correct.
    """
    a, b, c = (e.b.fpext(value, FLOAT) for value in (a, b, c))
    product = e.b.fmul(a, b)
    total = e.b.fadd(product, c)
    part = e.b.fsub(total, product)
    error = e.b.fadd(e.b.fsub(product, e.b.fsub(total, part)), e.b.fsub(c, part))
    bits = e.b.bitcast(total, I32)
    even = e.b.not_(e.b.trunc(bits, I1))
    inexact = e.b.fcmp_ordered("!=", error, 0.0)
    # One step towards the error: away from zero where the signs agree.
    same = e.b.icmp_signed(">=", e.b.xor(bits, e.b.bitcast(error, I32)), 0)
    odd = e.b.add(bits, e.b.select(same, constant(1), constant(-1)))
    odd = e.b.select(e.b.and_(even, inexact), odd, bits)
    return narrow(e, e.b.bitcast(odd, FLOAT), HALF)


def _rounding_operation(intrinsic: str) -> Callable[..., ir.Value]:
    return lambda e, a: e.b.intrinsic(intrinsic, a.type, a)


def _extreme(intrinsic: str) -> Callable[..., ir.Value]:
    """Return the builder of IEEE 754-2019 minimumNumber (prefers a number to a NaN), minimum (propagates NaN) or
    the maximum forms. -0 < +0.

    A NaN result is the first relevant NaN source, quieted.
    """

    def build(e: Emitter, *values: ir.Value) -> ir.Value:
        wide = [e.b.fpext(value, FLOAT) if value.type is HALF else value for value in values]
        result = e.b.intrinsic(intrinsic, FLOAT, *wide)
        result = e.b.fptrunc(result, HALF) if values[0].type is HALF else result
        first, second = (e.b.fcmp_unordered("uno", value, value) for value in values)
        if intrinsic.endswith("num"):
            return e.b.select(e.b.and_(first, second), _quiet_nan(e, values[0]), result)
        result = e.b.select(second, _quiet_nan(e, values[1]), result)
        return e.b.select(first, _quiet_nan(e, values[0]), result)

    return build


def _ieee_extreme(intrinsic: str) -> Callable[..., ir.Value]:
    """Return the builder of the minimum or maximum of gfx11.5, which follows IEEE as vector_float.ieee_min."""
    number = _extreme(intrinsic)

    def build(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
        first, second = (e.b.fcmp_unordered("uno", value, value) for value in (a, b))
        result = e.b.select(first, b, e.b.select(second, a, number(e, a, b)))
        for value, is_nan in ((b, second), (a, first)) if e.mode.is_ieee else ():
            bits, quiet = (I16, 0x0200) if value.type is HALF else (I32, 0x00400000)
            signalling = e.b.and_(is_nan, e.b.equal(e.b.and_(e.b.bitcast(value, bits), quiet), 0))
            result = e.b.select(signalling, _quiet_nan(e, value), result)
        return result

    return build


def _quiet_nan(e: Emitter, value: ir.Value) -> ir.Value:
    bits, quiet = (I16, 0x0200) if value.type is HALF else (I32, 0x00400000)
    return e.b.bitcast(e.b.or_(e.b.bitcast(value, bits), quiet), value.type)


for _suffix, _type in (("f32", FLOAT), ("f16", HALF)):
    EMIT |= {
        f"s_add_{_suffix}": _floats(in_mode("fadd"), _type),
        f"s_sub_{_suffix}": _floats(in_mode("fsub"), _type),
        f"s_mul_{_suffix}": _floats(in_mode("fmul"), _type),
        f"s_fmac_{_suffix}": _floats(_fused, _type, accumulates=True),
        f"s_min_num_{_suffix}": _floats(_extreme("llvm.minimumnum"), _type, flushes=False),
        f"s_max_num_{_suffix}": _floats(_extreme("llvm.maximumnum"), _type, flushes=False),
        f"s_min_{_suffix}": _floats(_ieee_extreme("llvm.minimumnum"), _type, flushes=False),
        f"s_max_{_suffix}": _floats(_ieee_extreme("llvm.maximumnum"), _type, flushes=False),
        f"s_minimum_{_suffix}": _floats(_extreme("llvm.minimum"), _type, flushes=False),
        f"s_maximum_{_suffix}": _floats(_extreme("llvm.maximum"), _type, flushes=False),
        f"s_ceil_{_suffix}": _floats(_rounding_operation("llvm.ceil"), _type),
        f"s_floor_{_suffix}": _floats(_rounding_operation("llvm.floor"), _type),
        f"s_trunc_{_suffix}": _floats(_rounding_operation("llvm.trunc"), _type),
        f"s_rndne_{_suffix}": _floats(_rounding_operation("llvm.roundeven"), _type),
    }
EMIT["s_fmaak_f32"] = EMIT["s_fmamk_f32"] = _floats(
    _fused, FLOAT
)  # the literal is where it is multiplied or added


def _to_integer(intrinsic: str) -> EmitFunction:
    """Return the builder of a truncating, saturating conversion to integer; NaN becomes 0."""

    def emit(e: Emitter, i: Instruction) -> None:
        value = float_source(e, i.operands[1], FLOAT)
        e.set_scalar(i.operands[0], e.b.intrinsic(intrinsic, I32, value, types=(I32, FLOAT)))

    return emit


def _half_toward_zero(e: Emitter, value: ir.Value) -> ir.Value:
    """Convert f32 to f16 bits (i16), rounded toward zero: round to nearest, then step back if that increased the
    magnitude.
    """
    near = e.b.fptrunc(value, HALF)
    bits = e.b.bitcast(near, I16)
    magnitude = e.b.bitcast(e.b.and_(e.b.bitcast(value, I32), 0x7FFFFFFF), FLOAT)
    got = e.b.fpext(e.b.bitcast(e.b.and_(bits, 0x7FFF), HALF), FLOAT)
    finite = e.b.fcmp_ordered("!=", magnitude, ir.Constant(FLOAT, float("inf")))
    beyond = e.b.and_(e.b.fcmp_ordered(">", got, magnitude), finite)
    return e.b.sub(bits, e.b.zext(beyond, I16))


def _pack_halves(e: Emitter, i: Instruction) -> None:
    halves = (e.b.bitcast(_half_toward_zero(e, float_source(e, o, FLOAT)), HALF) for o in i.operands[1:])
    if e.mode.flushes_results(HALF):
        halves = (_flush_denormal(e, half) for half in halves)
    low, high = (e.b.zext(e.b.bitcast(half, I16), I32) for half in halves)
    e.set_scalar(i.operands[0], e.b.or_(low, e.b.shl(high, 16)))


def _high_half_to_float(e: Emitter, i: Instruction) -> None:
    bits = e.b.trunc(e.b.lshr(e.scalar(i.operands[1]), 16), I16)
    value = e.b.bitcast(bits, HALF)
    _result(e, i, e.b.fpext(_flush_denormal(e, value) if e.mode.flushes_sources(HALF) else value, FLOAT))


EMIT |= {
    "s_cvt_f32_i32": unary(lambda e, a: from_integer(e, a, FLOAT, signed=True)),
    "s_cvt_f32_u32": unary(lambda e, a: from_integer(e, a, FLOAT, signed=False)),
    "s_cvt_i32_f32": _to_integer("llvm.fptosi.sat"),
    "s_cvt_u32_f32": _to_integer("llvm.fptoui.sat"),
    "s_cvt_f16_f32": _floats(lambda e, a: narrow(e, a, HALF), FLOAT),
    "s_cvt_f32_f16": _floats(lambda e, a: e.b.fpext(a, FLOAT), HALF),
    "s_cvt_hi_f32_f16": _high_half_to_float,
    "s_cvt_pk_rtz_f16_f32": _pack_halves,
}


# --- comparisons


def _compare_floats(comparison: str, of: ir.Type, *, unordered: bool) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        a, b = (float_source(e, operand, of) for operand in i.operands)
        e.regs.scc = (e.b.fcmp_unordered if unordered else e.b.fcmp_ordered)(comparison, a, b)

    return emit


for _suffix, _type in (("f32", FLOAT), ("f16", HALF)):
    for _name, _comparison in _ORDERED.items():
        EMIT[f"s_cmp_{_name}_{_suffix}"] = _compare_floats(_comparison, _type, unordered=False)
    for _name, _comparison in _UNORDERED.items():
        EMIT[f"s_cmp_{_name}_{_suffix}"] = _compare_floats(_comparison, _type, unordered=True)
