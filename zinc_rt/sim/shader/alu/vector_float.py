"""Floating-point rows of the vector ALU: arithmetic, minimum and maximum, rounding, the division steps, moves."""

from __future__ import annotations

import struct
import sys

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.directed import arithmetic, narrow
from zinc_rt.sim.shader.alu.vector import (
    BIAS,
    INTEGERS,
    MANTISSA,
    MINIMUM_NORMAL,
    NAN,
    Build,
    Value,
    absolute,
    apply_in_wider_type,
    bits_of,
    compose,
    flush_denormals,
    fused_multiply_add,
    half_of_double,
    in_mode,
    is_nan,
    is_signalling,
    join_halves,
    op,
    quiet_nan,
    set_result,
    source,
    sum_to_odd,
)  # fmt: skip
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, nothing
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I16, I32, I64, constant, type_bits
from zinc_rt.sim.shader.layout import VCC_LO


def _in_mode(name: str) -> Build:
    return lambda e, a, b: in_mode(e, name, a, b)


def _lift_call(name: str) -> Build:
    return lambda e, *values: apply_in_wider_type(e, lambda e, *v: e.b.intrinsic(name, v[0].type, *v), *values)


fadd, fsub, fmul = _in_mode("fadd"), _in_mode("fsub"), _in_mode("fmul")


def _number(name: str) -> Build:
    """Return the builder of IEEE 754-2019 minimumNumber or maximumNumber: prefers a number to a NaN; of two
    NaNs the first, quieted.
    """
    build = _lift_call(name)

    def emit(e: Emitter, a: Value, b: Value) -> Value:
        none = e.b.and_(is_nan(e, a), is_nan(e, b))
        return e.b.select(none, quiet_nan(e, a), build(e, a, b))

    return emit


def _propagating(name: str) -> Build:
    """Return the builder of IEEE 754-2019 minimum or maximum: propagates the first NaN in source order,
    quieted.
    """
    build = _lift_call(name)

    def emit(e: Emitter, a: Value, b: Value) -> Value:
        result = e.b.select(is_nan(e, b), quiet_nan(e, b), build(e, a, b))
        return e.b.select(is_nan(e, a), quiet_nan(e, a), result)

    return emit


min_num, max_num = _number("llvm.minimumnum"), _number("llvm.maximumnum")
minimum, maximum = _propagating("llvm.minimum"), _propagating("llvm.maximum")


def _ieee_number(name: str) -> Build:
    """Return the builder of the minimum or maximum of gfx11: prefers a number to a NaN and the second of two NaNs.
    In IEEE mode the first signalling NaN wins, quieted (RDNA3, V_MIN_F32).
    """
    build = _lift_call(name)

    def emit(e: Emitter, a: Value, b: Value) -> Value:
        result = e.b.select(is_nan(e, a), b, e.b.select(is_nan(e, b), a, build(e, a, b)))
        for value in (b, a) if e.mode.is_ieee else ():
            result = e.b.select(is_signalling(e, value), quiet_nan(e, value), result)
        return result

    return emit


ieee_min, ieee_max = _ieee_number("llvm.minimumnum"), _ieee_number("llvm.maximumnum")


def is_zero(e: Emitter, value: Value) -> Value:
    return e.b.fcmp_ordered("==", value, 0.0)


def is_infinite(e: Emitter, value: Value) -> Value:
    return e.b.fcmp_ordered("==", absolute(e, value), infinity(e, value.type))


def infinity(e: Emitter, of: ir.VectorType) -> ir.Constant:
    return constant(float("inf"), of)


def exponent(e: Emitter, value: Value) -> Value:
    """Return the biased exponent bits as an integer of the value's width."""
    of = value.type.element
    bits, places = bits_of(e, value), MANTISSA[of]
    shifted = e.b.lshr(bits, places)
    return e.b.and_(shifted, (1 << type_bits(of) - 1 - places) - 1)


def select_chain(e: Emitter, cases: list[tuple[Value, Value]], otherwise: Value) -> Value:
    """Return the value of the first case whose condition is true."""
    for condition, value in reversed(cases):
        otherwise = e.b.select(condition, value, otherwise)
    return otherwise


def _median(lower: Build, upper: Build) -> Build:
    """Return the builder of the median, from minimum and maximum. If a source is NaN, it is the minimum of the
    three; -0 < +0 (captured: the median of -0, +0, -0 is -0).
    """

    def emit(e: Emitter, a: Value, b: Value, c: Value) -> Value:
        nan = e.b.or_(e.b.or_(is_nan(e, a), is_nan(e, b)), is_nan(e, c))
        low, high = lower(e, a, b), upper(e, a, b)
        return e.b.select(nan, lower(e, low, c), upper(e, low, lower(e, high, c)))

    return emit


def _mul_dx9(e: Emitter, a: Value, b: Value) -> Value:
    """Multiply; 0 times anything, including NaN, is +0."""
    either = e.b.or_(is_zero(e, a), is_zero(e, b))
    return e.b.select(either, 0.0, fmul(e, a, b))


def _fma_dx9(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Multiply and add; denormals are always flushed, and a product with 0, including 0 * NaN, is +0 (captured on
    silicon).
    """
    a, b, c = flush_denormals(e, a), flush_denormals(e, b), flush_denormals(e, c)
    either = e.b.or_(is_zero(e, a), is_zero(e, b))
    with e.flushing_results():
        alone = fadd(e, constant(0.0, c.type), c)
        return flush_denormals(e, e.b.select(either, alone, fused_multiply_add(e, a, b, c)))


def _fract(e: Emitter, value: Value) -> Value:
    """Return x - floor(x), below 1. An infinity gives NaN; an integer or -0 gives +0 (captured on silicon)."""
    of = value.type.element
    below_one = {HALF: 1 - 2.0**-11, FLOAT: 1 - 2.0**-24, DOUBLE: 1 - 2.0**-53}[of]
    rest = fsub(e, value, _lift_call("llvm.floor")(e, value))
    limit = constant(below_one, value.type)
    invalid = e.b.bitcast(constant(NAN[of], e.b.lanes(INTEGERS[of])), value.type)
    rest = e.b.select(e.b.fcmp_ordered(">", rest, limit), limit, rest)
    rest = e.b.select(e.b.fcmp_ordered("==", rest, 0.0), 0.0, rest)
    return e.b.select(is_infinite(e, value), invalid, rest)


# --- exponents: ldexp, frexp


def power_of_two(e: Emitter, power: Value, of: ir.Type) -> Value:
    """Return 2**power for an integer vector within the normal range of `of`, which has the same width."""
    biased = e.b.add(power, BIAS[of])
    return e.b.bitcast(e.b.shl(biased, MANTISSA[of]), e.b.lanes(of))


def _keep_in_range(e: Emitter, value: Value, low: int, high: int) -> Value:
    value = e.b.intrinsic("llvm.smax", value.type, value, constant(low, value.type))
    return e.b.intrinsic("llvm.smin", value.type, value, constant(high, value.type))


def ldexp(e: Emitter, value: Value, power: Value) -> Value:
    """Return value * 2**power with one rounding, computed in the next wider format if there is one."""
    of = value.type.element
    if of is DOUBLE:
        return _ldexp_double(e, value, power)
    wide = FLOAT if of is HALF else DOUBLE
    reach = 60 if of is HALF else 300  # brings the smallest denormal to infinity, and the largest number to 0
    power = _keep_in_range(e, power, -reach, reach)
    power = e.b.sext(power, e.b.lanes(INTEGERS[wide]))
    scaled = e.b.fmul(e.b.fpext(value, e.b.lanes(wide)), power_of_two(e, power, wide))
    return narrow(e, scaled, of)


def _ldexp_double(e: Emitter, value: Value, power: Value) -> Value:
    """Return value * 2**power of doubles in steps. All but the last are exact: downward steps stay 53 powers above
    the denormals.
    """
    power = _keep_in_range(e, e.b.sext(power, e.b.lanes(I64)), -3000, 3000)
    step = constant(-1022 + 53, power.type)
    for _ in range(2):
        low = e.b.icmp_signed("<", power, -1022)
        taken = e.b.select(low, step, _keep_in_range(e, power, -1022, 1023))
        value = arithmetic(e, "fmul", value, power_of_two(e, taken, DOUBLE))
        power = e.b.sub(power, taken)
    return fmul(e, value, power_of_two(e, _keep_in_range(e, power, -1022, 1023), DOUBLE))


def two_over_pi(bits: int) -> int:
    """Return floor(2 / pi * 2**bits), with pi by Machin's formula."""
    one = 1 << bits + 32  # 32 bits for the errors of the terms

    def arctangent_of_inverse(x: int) -> int:
        term, total, n = one // x, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= x * x
            n += 2
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (2 * one << bits) // pi


_PREOP_BITS, _PREOP_WORDS = 1201, 19  # of 2 / pi in the instruction's table; 64-bit words that hold them


def _trig_preop(e: Emitter, value: Value, segment: Value) -> Value:
    """Return 53 bits of 2 / pi (RDNA4 ISA, V_TRIG_PREOP_F64). The first is bit 53 * segment, plus the part of the
    exponent above 1077. The instruction's table ends after 1201 bits; zeros follow.
    """
    b, of = e.b, e.b.lanes(I64)
    exponent = b.and_(b.lshr(bits_of(e, value), 52), 0x7FF)
    beyond = b.intrinsic("llvm.smax", of, b.sub(exponent, 1077), constant(0, of))
    shift = b.add(b.mul(b.and_(b.zext(segment, of), 31), 53), beyond)
    table = two_over_pi(_PREOP_BITS) << 64 * _PREOP_WORDS - _PREOP_BITS
    word, high, low = b.lshr(shift, 6), constant(0, of), constant(0, of)
    for index in range(_PREOP_WORDS):
        piece = constant(table >> 64 * (_PREOP_WORDS - 1 - index) & (1 << 64) - 1, of)
        high = b.select(b.equal(word, index), piece, high)
        low = b.select(b.equal(b.add(word, 1), index), piece, low)
    window = b.lshr(b.intrinsic("llvm.fshl", of, high, low, b.and_(shift, 63)), 11)
    scale = b.sub(constant(-53, of), shift)
    scale = b.add(scale, b.select(b.icmp_unsigned(">=", exponent, 1968), constant(128, of), constant(0, of)))
    return ldexp(e, b.uitofp(window, b.lanes(DOUBLE)), b.trunc(scale, b.lanes(I32)))


def _normalise(e: Emitter, value: Value) -> tuple[Value, Value]:
    """Return (double with the value's mantissa, normal or 0; excess of its exponent)."""
    of = value.type.element
    if of is not DOUBLE:
        return e.b.fpext(value, e.b.lanes(DOUBLE)), constant(0, e.b.lanes(I64))
    tiny = e.b.fcmp_ordered("<", absolute(e, value), MINIMUM_NORMAL[DOUBLE])
    scaled = e.b.select(tiny, e.b.fmul(value, 2.0**54), value)
    return scaled, e.b.select(tiny, constant(54, e.b.lanes(I64)), constant(0, e.b.lanes(I64)))


def _no_exponent(e: Emitter, value: Value) -> Value:
    """Return the lanes that hold 0, an infinity or a NaN."""
    finite = e.b.fcmp_ordered("<", absolute(e, value), infinity(e, value.type))
    return e.b.or_(is_zero(e, value), e.b.not_(finite))


def _frexp_exponent(to: ir.Type) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        wide, excess = _normalise(e, value)
        power = e.b.sub(e.b.sub(exponent(e, wide), 1022), excess)
        none = constant(0, e.b.lanes(to))
        return e.b.select(_no_exponent(e, value), none, e.b.trunc(power, e.b.lanes(to)))

    return build


def _frexp_mantissa(e: Emitter, value: Value) -> Value:
    """Return the signed mantissa in 0.5..1."""
    wide, _ = _normalise(e, value)
    bits = e.b.and_(bits_of(e, wide), 1 << 63 | (1 << 52) - 1)
    mantissa = e.b.bitcast(e.b.or_(bits, 1022 << 52), wide.type)
    if value.type.element is HALF:  # LLVM would call __truncdfhf2, which not every process has
        mantissa = half_of_double(e, mantissa)
    elif value.type.element is not DOUBLE:
        mantissa = e.b.fptrunc(mantissa, value.type)
    special = e.b.select(is_nan(e, value), quiet_nan(e, value), value)
    return e.b.select(_no_exponent(e, value), special, mantissa)


# --- division: v_div_scale, v_div_fmas, v_div_fixup

_SCALE = {FLOAT: 64, DOUBLE: 128}


def div_scale(e: Emitter, x: Value, denominator: Value, numerator: Value) -> tuple[Value, Value]:
    """Return (x scaled, lanes whose quotient v_div_fmas must scale back).

    Lanes whose numerator or denominator is zero are among these, with NaN, as on RDNA3 (gfx11_programs.txt in the
    tests); the manual does not say so, and v_div_fixup replaces their quotient.

    Deviates from the manual in two points that would lose quotients. The manual tests whether 1/denominator is a
    denormal double even for 32-bit floats, where it never is (but v_rcp_f32 flushes its own denormals). If the
    quotient is denormal too, the manual scales such a denominator up, to infinity; here it is scaled down.
    """
    b, of = e.b, x.type.element
    scale = _SCALE[of]
    far, tiny = (96, 23) if of is FLOAT else (768, 53)
    up = b.fmul(x, 2.0**scale)
    down = b.fmul(x, 2.0**-scale)
    nan = constant(float("nan"), x.type)
    is_denominator = b.fcmp_ordered("==", x, denominator)
    is_numerator = b.fcmp_ordered("==", x, numerator)

    def denormal(value: Value) -> Value:
        small = b.fcmp_ordered("<", absolute(e, value), MINIMUM_NORMAL[of])
        return b.and_(small, b.fcmp_ordered("!=", value, 0.0))

    zero = b.or_(is_zero(e, numerator), is_zero(e, denominator))
    numerator_power = exponent(e, numerator)
    apart = b.sub(numerator_power, exponent(e, denominator))
    huge = b.icmp_signed(">=", apart, far)
    small_denominator = denormal(denominator)
    inverse = denormal(b.fdiv(1.0, denominator))
    quotient = denormal(b.fdiv(numerator, denominator))
    small_numerator = b.icmp_signed("<=", numerator_power, tiny)
    cases = [
        (zero, nan),
        (huge, b.select(is_denominator, up, x)),
        (small_denominator, up),
        (b.and_(inverse, quotient), b.select(is_denominator, down, x)),
        (inverse, down),
        (quotient, b.select(is_numerator, up, x)),
        (small_numerator, up),
    ]
    afterwards = b.or_(huge, b.and_(b.not_(small_denominator), quotient))
    quiet = b.select(is_nan(e, x), quiet_nan(e, x), x)
    return select_chain(e, cases, quiet), b.or_(zero, afterwards)


def _emit_div_scale(letter: str) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        operands = instruction.operands
        sources = [source(e, instruction, operand, index, letter) for index, operand in enumerate(operands[2:])]
        value, scales = div_scale(e, *sources)
        set_result(e, instruction, operands[0], value)
        e.set_mask(operands[1], scales)

    return emit


def div_fmas(e: Emitter, a: Value, b: Value, c: Value, scales: Value) -> Value:
    """Return fma, scaled back in lanes whose VCC bit is set. Rounds once: denormal quotients would otherwise round
    twice.

    The factor is 2**64 (double: 2**128) in the direction of the quotient `c`: v_div_scale scales the denominator
    up for large quotients and the numerator up for small ones. The manual's constant factor of 2**32 would undo
    neither.
    """
    of = a.type.element
    result = fused_multiply_add(e, a, b, c)
    power = exponent(e, c)
    large = e.b.icmp_unsigned(">", power, BIAS[of])
    build = _scale_back_float if of is FLOAT else _scale_back_double
    return e.b.select(scales, build(e, a, b, c, result, large), result)


def _scale_back_float(e: Emitter, a: Value, b: Value, c: Value, result: Value, large: Value) -> Value:
    wide = e.b.lanes(DOUBLE)
    x, y, z = (e.b.fpext(value, wide) for value in (a, b, c))
    exact = sum_to_odd(e, e.b.fmul(x, y), z)
    up, down = (constant(2.0**by, wide) for by in (_SCALE[FLOAT], -_SCALE[FLOAT]))
    return narrow(e, e.b.fmul(exact, e.b.select(large, up, down)), FLOAT)


def _scale_back_double(e: Emitter, a: Value, b: Value, c: Value, result: Value, large: Value) -> Value:
    """Scale back doubles. Scaling rounds only for denormals; the fma's rounding error matters only at a tie.

    If the fma alone overflows, its operands are scaled first.
    """
    up, down, half = (constant(2.0**by, a.type) for by in (_SCALE[DOUBLE], -_SCALE[DOUBLE], -_SCALE[DOUBLE] / 2))
    if e.mode.rounding(DOUBLE) is not Rounding.NEAREST:
        return _scale_directed(e, a, b, c, result, large)
    scaled = e.b.fmul(result, e.b.select(large, up, down))
    before = fused_multiply_add(e, e.b.fmul(a, half), e.b.fmul(b, half), e.b.fmul(c, down))
    overflows = e.b.and_(is_infinite(e, result), e.b.not_(large))
    for value in (a, b, c):
        overflows = e.b.and_(overflows, e.b.not_(is_infinite(e, value)))
    scaled = e.b.select(overflows, before, scaled)
    product = e.b.fmul(a, b)
    product_low = fused_multiply_add(e, a, b, e.b.fneg(product))
    total = e.b.fadd(product, c)
    of_c = e.b.fsub(total, product)
    total_low = e.b.fadd(e.b.fsub(product, e.b.fsub(total, of_c)), e.b.fsub(c, of_c))
    rest = e.b.fadd(e.b.fadd(e.b.fsub(total, result), total_low), product_low)
    missed = e.b.fsub(result, e.b.fmul(scaled, up))
    tie = e.b.fcmp_ordered("==", absolute(e, missed), 2.0 ** (_SCALE[DOUBLE] - 1075))
    zero = constant(0.0, a.type)
    same_way = e.b.fcmp_ordered(">", e.b.fmul(missed, e.b.intrinsic("llvm.copysign", a.type, up, rest)), zero)
    wrong = e.b.and_(e.b.and_(tie, e.b.not_(large)), e.b.and_(same_way, e.b.fcmp_ordered("!=", rest, zero)))
    step = e.b.intrinsic("llvm.copysign", a.type, constant(2.0**-1074, a.type), rest)
    return e.b.select(wrong, e.b.fadd(scaled, step), scaled)


def _scale_directed(e: Emitter, a: Value, b: Value, c: Value, result: Value, large: Value) -> Value:
    """Scale back with directed rounding: rounding twice in one direction equals rounding once. If the fma
    overflows, its operands are scaled first.
    """
    up, down, half = (constant(2.0**by, a.type) for by in (_SCALE[DOUBLE], -_SCALE[DOUBLE], -_SCALE[DOUBLE] / 2))
    scaled = arithmetic(e, "fmul", result, e.b.select(large, up, down))
    before = fused_multiply_add(e, e.b.fmul(a, half), e.b.fmul(b, half), arithmetic(e, "fmul", c, down))
    overflows = e.b.fcmp_ordered(">=", absolute(e, result), sys.float_info.max)
    for value in (a, b, c):
        overflows = e.b.and_(overflows, e.b.not_(is_infinite(e, value)))
    return e.b.select(e.b.and_(overflows, e.b.not_(large)), before, scaled)


def _emit_div_fmas(letter: str) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        operands = instruction.operands
        sources = [source(e, instruction, operand, index, letter) for index, operand in enumerate(operands[1:])]
        scales = e.mask(Operand(Kind.SPECIAL, "vcc", VCC_LO, e.wave // 32))
        set_result(e, instruction, operands[0], div_fmas(e, *[*sources, scales]))

    return emit


def div_fixup(e: Emitter, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """Apply the quotient's sign and special cases.

    If the quotient overflows, the previous steps produce a NaN (infinity minus infinity), which the manual does
    not mention. It becomes an infinity here; otherwise division by these instructions would not conform to IEEE
    754.
    """
    b, of = e.b, quotient.type.element
    integer = INTEGERS[of]
    sign = constant(1 << type_bits(of) - 1, b.lanes(integer))
    sign_out = b.and_(b.xor(bits_of(e, denominator), bits_of(e, numerator)), sign)

    def signed(value: Value) -> Value:
        return b.bitcast(b.or_(bits_of(e, value), sign_out), value.type)

    zero = signed(constant(0.0, quotient.type))
    infinite = signed(infinity(e, quotient.type))
    nan = b.bitcast(constant(NAN[of], b.lanes(integer)), quotient.type)
    zero_over, zero_under = is_zero(e, numerator), is_zero(e, denominator)
    infinite_over, infinite_under = is_infinite(e, numerator), is_infinite(e, denominator)
    cases = [
        (is_nan(e, numerator), quiet_nan(e, numerator)),
        (is_nan(e, denominator), quiet_nan(e, denominator)),
        (b.and_(zero_over, zero_under), nan),
        (b.and_(infinite_over, infinite_under), nan),
        (b.or_(zero_under, infinite_over), infinite),
        (b.or_(infinite_under, zero_over), zero),
    ]
    if of is HALF:  # captured: where the steps before overflowed, as the mode rounds
        quotient_over = b.or_(is_nan(e, quotient), is_infinite(e, quotient))
        largest = b.sub(bits_of(e, infinite), 1)
        rounding, negative = e.mode.rounding(HALF), b.unequal(sign_out, 0)
        toward = {Rounding.UP: b.not_(negative), Rounding.DOWN: negative}.get(rounding)
        if toward is not None:
            overflowed = b.select(toward, infinite, b.bitcast(largest, quotient.type))
        else:
            overflowed = infinite if rounding is Rounding.NEAREST else b.bitcast(largest, quotient.type)
        cases.append((quotient_over, overflowed))
    else:
        apart = b.sub(exponent(e, numerator), exponent(e, denominator))
        minimum = -150 if of is FLOAT else -1075
        cases.append((b.icmp_signed("<", apart, minimum), zero))
    cases.append((is_nan(e, quotient), infinite))
    return select_chain(e, cases, signed(absolute(e, quotient)))


# --- moves


def _quiet_bits(e: Emitter, value: Value) -> Value:
    return bits_of(e, e.b.select(is_nan(e, value), quiet_nan(e, value), value))


def _emit_cndmask(letter: str) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            a, b = (source(e, instruction, operand, index, letter) for index, operand in enumerate(operands[1:3]))
            value = bits_of(e, e.b.select(e.mask(operands[3]), b, a))  # no clamp, no omod
            set_result(e, instruction, operands[0], value)

    return emit


def cube_faces(e: Emitter, x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    """Return (lanes whose major axis is z, lanes whose major axis is y if not z)."""
    size_x, size_y, size_z = absolute(e, x), absolute(e, y), absolute(e, z)
    over_x = e.b.fcmp_ordered(">=", size_z, size_x)
    major_z = e.b.and_(over_x, e.b.fcmp_ordered(">=", size_z, size_y))
    return major_z, e.b.fcmp_ordered(">=", size_y, size_x)


def _cube(build: Build) -> Build:
    """Return the emitter of a cube operation with denormals flushed in and out; calls `build(e, x, y, z,
    is_negative, choose)`.
    """

    def emit(e: Emitter, *axes: Value) -> Value:
        x, y, z = (flush_denormals(e, axis) for axis in axes)
        major_z, major_y = cube_faces(e, x, y, z)

        def negative(value: Value) -> Value:
            return e.b.fcmp_ordered("<", value, 0.0)

        def choose(for_z: Value, for_y: Value, for_x: Value) -> Value:
            return e.b.select(major_z, for_z, e.b.select(major_y, for_y, for_x))

        return flush_denormals(e, build(e, x, y, z, negative, choose))

    return emit


def _cube_id(e: Emitter, x: Value, y: Value, z: Value, negative: Build, choose: Build) -> Value:
    def face(axis: Value, number: int) -> Value:
        plus, minus = (constant(float(number + index), axis.type) for index in range(2))
        return e.b.select(negative(axis), minus, plus)

    return choose(face(z, 4), face(y, 2), face(x, 0))


def _cube_sc(e: Emitter, x: Value, y: Value, z: Value, negative: Build, choose: Build) -> Value:
    for_z = e.b.select(negative(z), e.b.fneg(x), x)
    return choose(for_z, x, e.b.select(negative(x), z, e.b.fneg(z)))


def _cube_tc(e: Emitter, x: Value, y: Value, z: Value, negative: Build, choose: Build) -> Value:
    return choose(e.b.fneg(y), e.b.select(negative(y), e.b.fneg(z), z), e.b.fneg(y))


def _cube_ma(e: Emitter, x: Value, y: Value, z: Value, negative: Build, choose: Build) -> Value:
    return e.b.fmul(choose(z, y, x), 2.0)


def _mullit(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    lowest = constant(struct.unpack("<f", b"\xff\xff\x7f\xff")[0], a.type)
    unlit = [
        e.b.fcmp_ordered("<=", b, lowest),
        is_nan(e, b),
        e.b.fcmp_unordered("<=", c, 0.0),
    ]
    return e.b.select(e.b.or_(e.b.or_(unlit[0], unlit[1]), unlit[2]), lowest, fmul(e, a, b))


_ROUNDINGS = {"trunc": "llvm.trunc", "ceil": "llvm.ceil", "floor": "llvm.floor", "rndne": "llvm.roundeven"}
_TYPED = (("f16", "h"), ("f32", "f"), ("f64", "d"))

OPS = {
    **{
        f"v_{name}_{suffix}": op(f"{t}={t}{t}", build)
        for suffix, t in _TYPED
        for name, build in (
            ("add", fadd),
            ("sub", fsub),
            ("subrev", lambda e, a, b: fsub(e, b, a)),
            ("mul", fmul),
        )
        if t != "d" or "sub" not in name
    },
    **{  # captured: the mode flushes their sources only
        f"v_{name}_{suffix}": op(f"{t.upper()}={t}{t}", build)
        for suffix, t in _TYPED
        for name, build in (
            ("min_num", min_num),
            ("max_num", max_num),
            ("minimum", minimum),
            ("maximum", maximum),
            ("min", ieee_min),
            ("max", ieee_max),
        )
    },
    **{
        f"v_{name}_{suffix}": op(f"{t.upper()}={t}{t}{t}", build)
        for suffix, t in _TYPED[:2]
        for name, build in (
            ("min3_num", compose(min_num, min_num)),
            ("max3_num", compose(max_num, max_num)),
            ("minimum3", compose(minimum, minimum)),
            ("maximum3", compose(maximum, maximum)),
            ("minmax_num", compose(min_num, max_num)),
            ("maxmin_num", compose(max_num, min_num)),
            ("minimummaximum", compose(minimum, maximum)),
            ("maximumminimum", compose(maximum, minimum)),
            ("med3_num", _median(min_num, max_num)),
            ("min3", compose(ieee_min, ieee_min)),
            ("max3", compose(ieee_max, ieee_max)),
            ("minmax", compose(ieee_min, ieee_max)),
            ("maxmin", compose(ieee_max, ieee_min)),
            ("med3", _median(ieee_min, ieee_max)),
        )
    },
    **{f"v_fma_{suffix}": op(f"{t}={t}{t}{t}", fused_multiply_add) for suffix, t in _TYPED},
    **{
        f"v_{name}_{suffix}": op(f"{t}={t}{t}{t}", fused_multiply_add)
        for suffix, t in _TYPED[:2]
        for name in ("fmamk", "fmaak")
    },
    **{f"v_fmac_{suffix}": op(f"{t}={t}{t}{t}", fused_multiply_add, accumulates=True) for suffix, t in _TYPED[:2]},
    **{
        f"v_{name}_{suffix}": op(f"{t}={t}", _lift_call(intrinsic))
        for suffix, t in _TYPED
        for name, intrinsic in _ROUNDINGS.items()
    },
    **{f"v_fract_{suffix}": op(f"{t}={t}", _fract) for suffix, t in _TYPED},
    **{f"v_frexp_mant_{suffix}": op(f"{t}={t}", _frexp_mantissa) for suffix, t in _TYPED},
    **{f"v_div_fixup_{suffix}": op(f"{t}={t}{t}{t}", div_fixup) for suffix, t in _TYPED},
    "v_frexp_exp_i16_f16": op("s=h", _frexp_exponent(I16)),
    "v_frexp_exp_i32_f32": op("i=f", _frexp_exponent(I32)),
    "v_frexp_exp_i32_f64": op("i=d", _frexp_exponent(I32)),
    "v_ldexp_f16": op("h=hs", ldexp),
    "v_ldexp_f32": op("f=fi", ldexp),
    "v_ldexp_f64": op("d=di", ldexp),
    "v_trig_preop_f64": op("d=Di", _trig_preop),
    "v_mul_dx9_zero_f32": op("f=ff", _mul_dx9),
    "v_fma_dx9_zero_f32": op("f=fff", _fma_dx9),
    "v_fmac_dx9_zero_f32": op("f=fff", _fma_dx9, accumulates=True),
    "v_mullit_f32": op("f=fff", _mullit),
    "v_cubeid_f32": op("f=fff", _cube(_cube_id)),
    "v_cubesc_f32": op("f=fff", _cube(_cube_sc)),
    "v_cubetc_f32": op("f=fff", _cube(_cube_tc)),
    "v_cubema_f32": op("f=fff", _cube(_cube_ma)),
    # Moves accept neg and abs, so they read floats; they write bits, to which output modifiers do not apply.
    "v_mov_b32": op("i=F", bits_of),
    # Captured: denormal sources are flushed according to the mode, NaNs quieted.
    "v_pack_b32_f16": op("i=hh", lambda e, a, b: join_halves(e, *(_quiet_bits(e, item) for item in (a, b)))),
}

EMIT: dict[str, EmitFunction] = {
    **OPS,
    "v_cndmask_b32": _emit_cndmask("F"),
    "v_cndmask_b16": _emit_cndmask("H"),
    "v_div_scale_f32": _emit_div_scale("f"),
    "v_div_scale_f64": _emit_div_scale("d"),
    "v_div_fmas_f32": _emit_div_fmas("f"),
    "v_div_fmas_f64": _emit_div_fmas("d"),
    "v_nop": nothing,
    "v_pipeflush": nothing,
}
__all__ = ["EMIT", "OPS", "half_of_double"]
