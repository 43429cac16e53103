"""exp, log, rcp, rsq, sqrt, sin, cos, which the manual specifies to 1 ULP (RDNA4 ISA 16.8).

Results are correctly rounded: the last bit on hardware is not documented. With Checks.perturb, a finite normal
result of a finite normal input moves by -1, 0 or +1 ULP. The amount is a hash of context.perturb_seed
(perturbation.py), the position of the instruction, the lane and the input. A kernel whose output changes under
perturbation depends on undefined bits. 32-bit denormals are flushed in inputs and results (except for sin); 16-bit
and 64-bit denormals are kept.

exp2 and log2 are evaluated as a sum of two doubles and rounded to odd, so that the second rounding gives the
correctly rounded 32-bit result; all inputs were compared with a 64-bit significand reference. For 1/sqrt doubles
are sufficient: of all 2**24 mantissas, one is closer to a tie than the error, and it is rounded correctly. sin and
cos have an error of a few ULP of a double, so about one input in 2**26 is not correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.vector import (
    INTEGERS,
    MANTISSA,
    NAN,
    TYPES,
    Build,
    Value,
    absolute,
    apply_in_wider_type,
    apply_output_modifiers,
    bits_of,
    by_intrinsic,
    flush_denormals,
    half_of_double,
    is_nan,
    largest_for_infinity,
    outline,
    set_result,
    source,
    sum_to_odd,
)  # fmt: skip
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, HALF, I32, I64, constant, type_bits, vector_of
from zinc_rt.sim.shader.perturbation import DOWN_BIT, FIRST_KEPT_BIT, FUNCTIONS, UP_BIT

_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_HALF_LN2_SQUARED = (float.fromhex("0x1.ebfbdff82c58fp-3"), float.fromhex("-0x1.5e43a53e44da3p-57"))
_TWO_OVER_LN2 = (float.fromhex("0x1.71547652b82fep+1"), float.fromhex("0x1.777d0ffda0d24p-55"))
# (2**r - 1 - r ln2 - r**2 ln2**2 / 2) / r**3 on [-1/2, 1/2], a Chebyshev fit good to 2**-64; highest power first
_EXP2_REST = (
    0x181FCDFCAF5D12 * 2.0**-92, 0x1C48F769AD2C46 * 2.0**-88, 0x1E8CAA05F768E9 * 2.0**-84,
    0x1E4CF1CD08D4B8 * 2.0**-80, 0x1B5253D3D9DFA2 * 2.0**-76, 0x162C022401B97D * 2.0**-72,
    0x1FFCBFC588AAB5 * 2.0**-69, 0x1430912F86BF52 * 2.0**-65, 0x15D87FE78A6731 * 2.0**-62,
    0x13B2AB6FBA4E78 * 2.0**-59, 0x1C6B08D704A0C0 * 2.0**-57,
)  # fmt: skip
_LOG_TERMS = 12  # of atanh's series: (sqrt(2) - 1)**(2 * 12 + 2) is below 2**-60 of the first
_SQRT2_BITS = 0x3FF6A09E667F3BCC
_MANTISSA = 52
_BIAS = 1023


_fma = by_intrinsic("llvm.fma")


def _horner(e: Emitter, x: Value, coefficients: tuple[float, ...]) -> Value:
    result = constant(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        result = _fma(e, result, x, constant(coefficient, x.type))
    return result


def _product(e: Emitter, x: Value, factor: tuple[float, float]) -> tuple[Value, Value]:
    """Return x times a constant of two doubles, as a sum of two doubles."""
    high, low = (constant(part, x.type) for part in factor)
    product = e.b.fmul(x, high)
    return product, _fma(e, x, low, _fma(e, x, high, e.b.fneg(product)))


def exp2(e: Emitter, x: Value) -> Value:
    """Return 2**x for doubles with few bits (a converted float or half), -infinity to +infinity. NaN is not
    supported.
    """
    b = e.b
    for comparison, limit in (("<", -300.0), (">", 300.0)):
        end = constant(limit, x.type)
        x = b.select(b.fcmp_ordered(comparison, x, end), end, x)
    intrinsic = b.intrinsic("llvm.roundeven", x.type, x)
    r = b.fsub(x, intrinsic)
    square = b.fmul(r, r)  # exact: r has at most 24 bits
    first, first_low = _product(e, r, _LN2)
    second, second_low = _product(e, square, _HALF_LN2_SQUARED)
    rest = b.fmul(b.fmul(square, r), _horner(e, r, _EXP2_REST))
    one = constant(1.0, x.type)
    partial = b.fadd(one, first)
    error = b.fadd(b.fsub(one, partial), first)
    high = b.fadd(partial, second)
    error = b.fadd(error, b.fadd(b.fsub(partial, high), second))
    low = b.fadd(rest, b.fadd(error, b.fadd(first_low, second_low)))
    mantissa = bits_of(e, sum_to_odd(e, high, low))
    power = b.sext(b.fptosi(intrinsic, b.lanes(I32)), b.lanes(I64))
    return b.bitcast(b.add(mantissa, b.shl(power, _MANTISSA)), x.type)


def log2(e: Emitter, x: Value) -> Value:
    """Return log2 of positive, finite, normal doubles: exponent plus 2 atanh((m - 1) / (m + 1)) / ln 2."""
    b = e.b
    bits = bits_of(e, x)
    of = bits.type
    exponent = b.sub(b.lshr(bits, _MANTISSA), _BIAS)
    fraction = b.and_(bits, (1 << _MANTISSA) - 1)
    mantissa = b.or_(fraction, _BIAS << _MANTISSA)
    upper = b.icmp_unsigned(">", mantissa, _SQRT2_BITS)
    mantissa = b.select(upper, b.sub(mantissa, 1 << _MANTISSA), mantissa)
    exponent = b.add(exponent, b.zext(upper, of))
    m, one = b.bitcast(mantissa, x.type), constant(1.0, x.type)
    over, under = b.fsub(m, one), b.fadd(m, one)
    s = b.fdiv(over, under)
    s_low = b.fdiv(_fma(e, b.fneg(s), under, over), under)
    square = b.fmul(s, s)
    series = _horner(e, square, tuple(1.0 / (2 * term + 3) for term in reversed(range(_LOG_TERMS))))
    first, first_low = _product(e, s, _TWO_OVER_LN2)
    rest = b.fmul(first, b.fmul(square, series))
    whole = b.sitofp(b.trunc(exponent, b.lanes(I32)), x.type)
    high = b.fadd(whole, first)
    error = b.fadd(b.fsub(whole, high), first)
    from_s = b.fmul(_TWO_OVER_LN2[0], s_low)
    low = b.fadd(rest, b.fadd(b.fadd(first_low, error), from_s))
    return sum_to_odd(e, high, low)


def _turns(e: Emitter, x: Value, quarter: int) -> Value:
    """Return sin(2 pi (x + quarter / 4)) of doubles; the argument reduction is exact."""
    b = e.b
    turn = b.fsub(x, b.intrinsic("llvm.roundeven", x.type, x))
    four = b.fmul(turn, 4.0)
    quadrant = b.intrinsic("llvm.roundeven", x.type, four)
    angle = b.fmul(b.fsub(four, quadrant), math.pi / 2)
    square = b.fmul(angle, angle)
    sines = tuple((-1.0) ** term / math.factorial(2 * term + 3) for term in reversed(range(8)))
    cosines = tuple((-1.0) ** term / math.factorial(2 * term + 2) for term in reversed(range(9)))
    cube = b.fmul(square, angle)
    sine = b.fsub(angle, b.fmul(cube, _horner(e, square, sines)))
    cosine = b.fsub(1.0, b.fmul(square, _horner(e, square, cosines)))
    finite = b.fcmp_ordered("ord", quadrant, quadrant)
    number = b.fptosi(b.select(finite, quadrant, 0.0), b.lanes(I32))
    number = b.add(number, quarter)
    none = constant(0, number.type)
    odd = b.unequal(b.and_(number, 1), none)
    minus = b.unequal(b.and_(number, 2), none)
    value = b.select(odd, cosine, sine)
    return b.fadd(b.select(minus, b.fneg(value), value), 0.0)  # -0 becomes +0


# --- one function of a format's lanes each


def _through_double(build: Build) -> Build:
    """Return a builder that applies `build` to doubles and rounds the result to 16 or 32 bits."""

    def emit(e: Emitter, value: Value) -> Value:
        result = build(e, e.b.fpext(value, e.b.lanes(DOUBLE)))
        return half_of_double(e, result) if value.type.element is HALF else e.b.fptrunc(result, value.type)

    return emit


def _exp(e: Emitter, value: Value) -> Value:
    result = _through_double(exp2)(e, value)
    return e.b.select(is_nan(e, value), e.b.fadd(value, value), result)


def _log(e: Emitter, value: Value) -> Value:
    b, of = e.b, value.type
    zero, infinity = constant(0.0, of), constant(float("inf"), of)
    inside = b.and_(b.fcmp_ordered(">", value, zero), b.fcmp_ordered("<", value, infinity))
    result = _through_double(log2)(e, b.select(inside, value, 1.0))
    special = b.select(b.fcmp_ordered("==", value, zero), b.fneg(infinity), _invalid(e, value))
    return b.select(inside, result, b.select(b.fcmp_ordered(">", value, zero), infinity, special))


def _invalid(e: Emitter, value: Value) -> Value:
    """Return a NaN input quieted, otherwise the NaN of an invalid operation."""
    nan = is_nan(e, value)
    default = e.b.bitcast(constant(NAN[value.type.element], e.b.lanes(INTEGERS[value.type.element])), value.type)
    return e.b.select(nan, e.b.fadd(value, value), default)


def _rcp(e: Emitter, value: Value) -> Value:
    return apply_in_wider_type(e, lambda e, x: e.b.fdiv(1.0, x), value)


def _square_root(e: Emitter, value: Value) -> Value:
    result = apply_in_wider_type(e, lambda e, x: e.b.intrinsic("llvm.sqrt", x.type, x), value)
    return _handle_negatives(e, value, result)


def _rsq(e: Emitter, value: Value) -> Value:
    def build(e: Emitter, x: Value) -> Value:
        return e.b.fdiv(1.0, e.b.intrinsic("llvm.sqrt", x.type, x))

    through = build if value.type.element is DOUBLE else _through_double(build)
    return _handle_negatives(e, value, through(e, value))


def _handle_negatives(e: Emitter, value: Value, result: Value) -> Value:
    """Return the result, or below zero a NaN with the sign specified by the manual."""
    negative = e.b.fcmp_ordered("<", value, 0.0)
    return e.b.select(negative, _invalid(e, value), result)


def _sine(e: Emitter, value: Value) -> Value:
    result = _through_double(lambda e, x: _turns(e, x, 0))(e, value)
    zero = e.b.fcmp_ordered("==", value, 0.0)
    return e.b.select(zero, value, _handle_infinities(e, value, result))


def _cosine(e: Emitter, value: Value) -> Value:
    return _handle_infinities(e, value, _through_double(lambda e, x: _turns(e, x, 1))(e, value))


def _handle_infinities(e: Emitter, value: Value, result: Value) -> Value:
    finite = e.b.fcmp_ordered("<", absolute(e, value), float("inf"))
    return e.b.select(finite, result, _invalid(e, value))


def _perturb_result(e: Emitter, name: str, value: Value, result: Value) -> Value:
    """Return the result perturbed as described in the module docstring."""
    b, of = e.b, result.type.element
    if not e.checks.perturb:
        return result
    seed = b.trunc(b.xor(e.frame.field("perturb_seed"), b.lshr(e.frame.field("perturb_seed"), 32)), I32)
    location = b.add(b.mul(seed, 0x9E3779B1), b.add(b.mul(e.frame.position(), 0x85EBCA77), 1))
    words = b.lanes(I32)
    argument = bits_of(e, value)
    if type_bits(of) == 64:
        argument = b.xor(argument, b.lshr(argument, 32))
    argument = argument if type_bits(of) == 32 else (b.trunc if type_bits(of) == 64 else b.zext)(argument, words)
    lanes = vector_of(lane * 0xC2B2AE3D & 0xFFFFFFFF for lane in range(e.wave))
    mixed = b.xor(b.xor(argument, lanes), b.splat(location))
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = b.xor(mixed, b.lshr(mixed, shift))
        mixed = b.mul(mixed, factor)
    third = b.lshr(b.mul(b.lshr(mixed, 16), 3), 16)
    delta = b.sub(third, 1)
    how = b.trunc(b.lshr(e.frame.field("perturb_seed"), 32), I32)
    kept = FIRST_KEPT_BIT + FUNCTIONS.index(name)
    for bit, step in ((DOWN_BIT, -1), (UP_BIT, 1), (kept, 0)):
        set_there = b.unequal(b.and_(b.splat(how), 1 << bit - 32), 0)
        delta = b.select(set_there, constant(step, words), delta)
    bits = bits_of(e, result)
    if bits.type != words:
        delta = (b.sext if type_bits(of) == 64 else b.trunc)(delta, bits.type)
    movable = b.and_(_is_ordinary(e, value, 0), _is_ordinary(e, result, 1))
    moved = b.add(bits, b.select(movable, delta, 0))
    return b.bitcast(moved, result.type)


def _is_ordinary(e: Emitter, value: Value, margin: int) -> Value:
    """Return the lanes whose value is finite and normal by more than `margin` ULP."""
    of = value.type.element
    size = e.b.and_(bits_of(e, value), (1 << type_bits(of) - 1) - 1)
    places = MANTISSA[of]
    smallest = (1 << places) + margin
    infinity = ((1 << type_bits(of) - 1) - 1) >> places << places
    above = e.b.sub(size, smallest)
    return e.b.below(above, infinity - margin - smallest)


def _function(name: str, letter: str, build: Build, *, flush: bool) -> Build:
    """Return the emitter of a function. It is emitted once, out of line, because kernels call it many times."""

    def emit(e: Emitter, value: Value) -> Value:
        def body(e: Emitter, value: Value) -> Value:
            if not flush:
                return build(e, value)
            return flush_denormals(e, build(e, flush_denormals(e, value)))

        result = outline(e, f"zrt.{name}.{letter}.{e.wave}", value.type, body, value)
        return _perturb_result(e, name, value, result)

    return emit


def _emit(letter: str, build: Build) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            value = source(e, instruction, operands[1], 0, letter)
            result = largest_for_infinity(e, build(e, value), [value])
            set_result(e, instruction, operands[0], result, rounding=Rounding.NEAREST)

    return emit


def _emit_scalar(letter: str, build: Build) -> EmitFunction:
    """Return the emitter of v_s_*, which operates on a scalar register and ignores EXEC."""

    def emit(e: Emitter, instruction: Instruction) -> None:
        vector = e.vector(instruction.operands[1], TYPES[letter])
        if letter == "h" and e.mode.flushes_sources(HALF):
            vector = flush_denormals(e, vector)
        value = largest_for_infinity(e, build(e, vector), [vector])
        value = apply_output_modifiers(e, instruction, value, Rounding.NEAREST)
        if letter == "h" and e.mode.flushes_results(HALF):
            value = flush_denormals(e, value)
        one = e.b.extract_element(bits_of(e, value), constant(0))
        e.set_scalar(instruction.operands[0], one if letter == "f" else e.b.zext(one, I32))

    return emit


_BUILDS: dict[str, tuple[Callable[..., Value], str]] = {
    "exp": (_exp, "hf"),
    "log": (_log, "hf"),
    "rcp": (_rcp, "hfd"),
    "rsq": (_rsq, "hfd"),
    "sqrt": (_square_root, "hfd"),
    "sin": (_sine, "hf"),
    "cos": (_cosine, "hf"),
}
_SUFFIXES = {"h": "f16", "f": "f32", "d": "f64"}


def _table() -> dict[str, EmitFunction]:
    result: dict[str, EmitFunction] = {}
    for name, (build, letters) in _BUILDS.items():
        for letter in letters:
            flush = letter == "f" and name != "sin"  # cos: 7.2.4
            function = _function(name, letter, build, flush=flush)
            result[f"v_{name}_{_SUFFIXES[letter]}"] = _emit(letter, function)
            if letter != "d" and name not in ("sin", "cos"):
                result[f"v_s_{name}_{_SUFFIXES[letter]}"] = _emit_scalar(letter, function)
    result["v_rcp_iflag_f32"] = result["v_rcp_f32"]
    return result


EMIT: dict[str, EmitFunction] = _table()
