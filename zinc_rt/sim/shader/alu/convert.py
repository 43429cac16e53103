"""Conversions between number formats (RDNA4 ISA 7.6)."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.alu.directed import from_integer, narrow
from zinc_rt.sim.shader.alu.vector import (
    Build,
    Value,
    absolute,
    bits_of,
    flush_denormals,
    is_nan,
    join_halves,
    op,
)
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I8, I16, I32, constant, type_bits


def saturating(e: Emitter, value: Value, to: ir.IntType, signed: bool) -> Value:
    """Truncate a float to an integer. Out-of-range values saturate; NaN becomes 0.

    Does not use llvm.fptosi.sat: the x86 back end scalarises it, which takes seven times the instructions.
    """
    b, bits = e.b, to.width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    above = b.fcmp_ordered(">=", value, float(high + 1))
    minimum = float(low) if signed and bits == 32 else float(low - 1)
    comparison = ">=" if signed and bits == 32 else ">"
    inside = b.and_(b.fcmp_ordered(comparison, value, minimum), b.not_(above))
    kept = b.select(inside, value, 0.0)
    result = (b.fptosi if signed or bits < 32 else b.fptoui)(kept, b.lanes(I32))
    if signed:
        below = b.fcmp_ordered("<", value, 0.0)
        ends = b.select(below, constant(low, result.type), constant(0, result.type))
        result = b.select(inside, result, ends)
    result = b.select(above, high, result)
    return result if bits == 32 else b.trunc(result, b.lanes(to))


def _to_integer(to: ir.IntType, signed: bool) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        if value.type.element is HALF:  # exact
            value = e.b.fpext(value, e.b.lanes(FLOAT))
        return saturating(e, value, to, signed)

    return build


def _from_integer(to: ir.Type, signed: bool) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        if to is HALF:  # 16 bits are exact in 24
            convert = e.b.sitofp if signed else e.b.uitofp
            return narrow(e, convert(value, e.b.lanes(FLOAT)), HALF)
        return from_integer(e, value, to, signed=signed)

    return build


def _byte(number: int) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        shifted = e.b.lshr(value, 8 * number) if number else value
        byte = e.b.and_(shifted, 0xFF) if number < 3 else shifted
        return e.b.uitofp(byte, e.b.lanes(FLOAT))

    return build


def _nearest(e: Emitter, value: Value) -> Value:
    """Return floor(x + 0.5), computed in 64 bits so that the sum is exact enough."""
    half = e.b.fadd(e.b.fpext(value, e.b.lanes(DOUBLE)), 0.5)
    return _round_by_sign(e, value, saturating(e, e.b.intrinsic("llvm.floor", half.type, half), I32, True))


def _floor(e: Emitter, value: Value) -> Value:
    return _round_by_sign(e, value, saturating(e, e.b.intrinsic("llvm.floor", value.type, value), I32, True))


def _round_by_sign(e: Emitter, value: Value, result: Value) -> Value:
    """Replace NaN by the range limit of the NaN's sign. Captured on silicon; the manual specifies 0."""
    negative = e.b.icmp_signed("<", bits_of(e, value), 0)
    end = e.b.select(negative, constant(1 << 31, result.type), constant((1 << 31) - 1, result.type))
    return e.b.select(is_nan(e, value), end, result)


def _off_f32_i4(e: Emitter, value: Value) -> Value:
    """Convert a signed 4-bit integer, in units of 1/16, to a float."""
    by = constant(28, value.type)
    nibble = e.b.ashr(e.b.shl(value, by), by)
    return e.b.fmul(e.b.sitofp(nibble, e.b.lanes(FLOAT)), 0.0625)


def half_toward_zero(e: Emitter, value: Value) -> Value:
    """Convert <W x float> to half bits (<W x i16>), rounded toward zero: round to nearest, then step back if the
    magnitude increased.
    """
    nearest = e.b.fptrunc(value, e.b.lanes(HALF))
    back = e.b.fpext(nearest, value.type)
    too_large = e.b.fcmp_ordered(">", absolute(e, back), absolute(e, value))
    bits = e.b.bitcast(nearest, e.b.lanes(I16))
    return e.b.sub(bits, e.b.zext(too_large, bits.type))


def _half_toward_zero_in_mode(e: Emitter, value: Value) -> Value:
    half = e.b.bitcast(half_toward_zero(e, value), e.b.lanes(HALF))
    return bits_of(e, flush_denormals(e, half) if e.mode.flushes_results(HALF) else half)


def _packing(convert: Build) -> Build:
    return lambda e, a, b: join_halves(e, convert(e, a), convert(e, b))


def normalised(signed: bool) -> Build:
    """Convert -1..1 to a signed 16-bit integer, without its lowest value, or 0..1 to an unsigned one. Round the
    exact product to nearest even.
    """

    def build(e: Emitter, value: Value) -> Value:
        wide = e.b.fpext(value, e.b.lanes(DOUBLE))
        low, full = (-1.0, 32767.0) if signed else (0.0, 65535.0)
        for comparison, limit in (("<", low), (">", 1.0)):
            end = constant(limit, wide.type)
            wide = e.b.select(e.b.fcmp_ordered(comparison, wide, end), end, wide)
        scaled = e.b.fmul(wide, full)
        rounded = e.b.intrinsic("llvm.roundeven", scaled.type, scaled)
        return e.b.trunc(saturating(e, rounded, I32, True), e.b.lanes(I16))

    return build


_TO_WHOLE = {
    Rounding.NEAREST: "llvm.roundeven",
    Rounding.UP: "llvm.ceil",
    Rounding.DOWN: "llvm.floor",
    Rounding.ZERO: "llvm.trunc",
}


def _pk_u8(e: Emitter, value: Value, place: Value, into: Value) -> Value:
    """Insert a number as a byte at position `place` of `into`, rounded according to MODE (captured on silicon)."""
    intrinsic = e.b.intrinsic(_TO_WHOLE[e.mode.rounding(FLOAT)], value.type, value)
    byte = e.b.zext(saturating(e, intrinsic, I8, False), into.type)
    by = e.b.shl(e.b.and_(place, 3), 3)
    kept = e.b.and_(into, e.b.not_(e.b.shl(0xFF, by)))
    return e.b.or_(kept, e.b.shl(byte, by))


def _resize(to: ir.Type) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        is_narrower = type_bits(to) < type_bits(value.type.element)
        return narrow(e, value, to) if is_narrower else e.b.fpext(value, e.b.lanes(to))

    return build


OPS = {
    "v_cvt_f32_i32": op("f=i", _from_integer(FLOAT, True)),
    "v_cvt_f32_u32": op("f=i", _from_integer(FLOAT, False)),
    "v_cvt_f64_i32": op("d=i", _from_integer(DOUBLE, True)),
    "v_cvt_f64_u32": op("d=i", _from_integer(DOUBLE, False)),
    "v_cvt_f16_i16": op("h=s", _from_integer(HALF, True)),
    "v_cvt_f16_u16": op("h=s", _from_integer(HALF, False)),
    "v_cvt_i32_f32": op("i=f", _to_integer(I32, True)),
    "v_cvt_u32_f32": op("i=f", _to_integer(I32, False)),
    "v_cvt_i32_f64": op("i=d", _to_integer(I32, True)),
    "v_cvt_u32_f64": op("i=d", _to_integer(I32, False)),
    "v_cvt_i16_f16": op("s=h", _to_integer(I16, True)),
    "v_cvt_u16_f16": op("s=h", _to_integer(I16, False)),
    "v_cvt_nearest_i32_f32": op("i=f", _nearest),
    "v_cvt_floor_i32_f32": op("i=f", _floor),
    "v_cvt_off_f32_i4": op("f=i", _off_f32_i4),
    "v_cvt_f16_f32": op("h=f", _resize(HALF)),
    "v_cvt_f32_f16": op("f=h", _resize(FLOAT)),
    "v_cvt_f32_f64": op("f=d", _resize(FLOAT)),
    "v_cvt_f64_f32": op("d=f", _resize(DOUBLE)),
    **{f"v_cvt_f32_ubyte{number}": op("f=i", _byte(number)) for number in range(4)},
    "v_cvt_norm_i16_f16": op("s=h", normalised(True)),
    "v_cvt_norm_u16_f16": op("s=h", normalised(False)),
    "v_cvt_pk_norm_i16_f16": op("i=hh", _packing(normalised(True))),
    "v_cvt_pk_norm_u16_f16": op("i=hh", _packing(normalised(False))),
    "v_cvt_pk_norm_i16_f32": op("i=ff", _packing(normalised(True))),
    "v_cvt_pk_norm_u16_f32": op("i=ff", _packing(normalised(False))),
    "v_cvt_pk_i16_f32": op("i=ff", _packing(_to_integer(I16, True))),
    "v_cvt_pk_u16_f32": op("i=ff", _packing(_to_integer(I16, False))),
    "v_cvt_pk_rtz_f16_f32": op("i=ff", _packing(_half_toward_zero_in_mode)),
    "v_cvt_pk_u8_f32": op("i=fii", _pk_u8),
}

EMIT: dict[str, EmitFunction] = {**OPS}
