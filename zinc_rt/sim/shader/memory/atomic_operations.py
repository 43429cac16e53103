"""The new value of each atomic operation: one function per operation, on integers of the access width."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I16, I32

Operation = Callable[[CodeBuilder, ir.Value, ir.Value, ir.Value], ir.Value]
"""(routine, old value, data, second data) -> new value; all iN of the access"""


def _minimum(kind: str, order: str) -> Operation:
    def operation(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
        compare = b.icmp_signed if kind == "i" else b.icmp_unsigned
        return b.select(compare(order, data, old), data, old)

    return operation


def _increment(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    wraps = b.icmp_unsigned(">=", old, data)
    return b.select(wraps, 0, b.add(old, 1))


def _decrement(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    wraps = b.any(b.equal(old, 0), b.icmp_unsigned(">", old, data))
    return b.select(wraps, data, b.sub(old, 1))


def _conditional_subtract(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    return b.select(b.icmp_unsigned(">=", old, data), b.sub(old, data), old)


def _subtract_clamped(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    return b.select(b.below(old, data), 0, b.sub(old, data))


def _compare_store(b: CodeBuilder, old: ir.Value, data: ir.Value, compare: ir.Value) -> ir.Value:
    return b.select(b.equal(old, compare), data, old)


def _compare_store_float(b: CodeBuilder, old: ir.Value, data: ir.Value, compare: ir.Value) -> ir.Value:
    """Store if the values are equal as floats: -0 equals +0, and a NaN nothing."""
    of = FLOAT if old.type == I32 else DOUBLE
    return b.select(b.fcmp_ordered("==", b.bitcast(old, of), b.bitcast(compare, of)), data, old)


def _wrap(b: CodeBuilder, old: ir.Value, data: ir.Value, limit: ir.Value) -> ir.Value:
    """Subtract, or add the limit if the difference would be negative (RDNA3, DS_WRAP_RTN_B32)."""
    return b.select(b.icmp_unsigned(">=", old, data), b.sub(old, data), b.add(old, limit))


def _masked_or(b: CodeBuilder, old: ir.Value, mask: ir.Value, data: ir.Value) -> ir.Value:
    return b.or_(b.and_(old, b.not_(mask)), data)


def _exchange_if(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    """Store each 32-bit half without its top bit, if that bit is set."""
    result = old.type(0)
    for shift in (0, 32):
        mine = b.trunc(b.lshr(data, shift), I32)
        before = b.trunc(b.lshr(old, shift), I32)
        new = b.and_(mine, 0x7FFFFFFF)
        half = b.select(b.has(mine, 1 << 31), new, before)
        result = b.or_(result, b.shl(b.zext(half, old.type), shift))
    return result


def _add_float(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
    return b.bitcast(b.fadd(b.bitcast(old, FLOAT), b.bitcast(data, FLOAT)), old.type)


def _number(order: str) -> Operation:
    """Return IEEE minimumNumber or maximumNumber: a number is preferred to a NaN, -0 < +0."""

    def operation(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
        of = FLOAT if old.type == I32 else DOUBLE
        bits = old.type.width
        mine, before = b.bitcast(data, of), b.bitcast(old, of)
        sign = b.icmp_signed("<", old if order == "<" else data, 0)
        keep = b.any(b.fcmp_ordered(order, before, mine), b.and_(b.fcmp_ordered("==", before, mine), sign))
        number = b.select(keep, old, data)
        quiet = b.or_(data, 1 << (22 if bits == 32 else 51))
        not_mine, not_before = b.fcmp_unordered("uno", mine, mine), b.fcmp_unordered("uno", before, before)
        without_mine = b.select(not_before, quiet, old)
        return b.select(not_mine, without_mine, b.select(not_before, data, number))

    return operation


def _signalling_number(order: str) -> Operation:
    """Return minimum or maximum of gfx11: as _number, but a signalling NaN wins, quieted (RDNA3 13.3)."""
    number = _number(order)

    def operation(b: CodeBuilder, old: ir.Value, data: ir.Value, unused: ir.Value) -> ir.Value:
        of, quiet = (FLOAT, 1 << 22) if old.type == I32 else (DOUBLE, 1 << 51)
        result = number(b, old, data, unused)
        for item in (old, data):
            value = b.bitcast(item, of)
            signalling = b.and_(b.fcmp_unordered("uno", value, value), b.equal(b.and_(item, quiet), 0))
            result = b.select(signalling, b.or_(item, quiet), result)
        return result

    return operation


def _pairs(add: Callable[[CodeBuilder, ir.Value, ir.Value], ir.Value]) -> Operation:
    def operation(b: CodeBuilder, old: ir.Value, data: ir.Value, _: ir.Value) -> ir.Value:
        result = I32(0)
        for shift in (0, 16):
            one, other = (b.trunc(b.lshr(item, shift), I16) for item in (old, data))
            result = b.or_(result, b.shl(b.zext(add(b, one, other), I32), shift))
        return result

    return operation


def _add_half(b: CodeBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
    return b.bitcast(b.fadd(b.bitcast(one, HALF), b.bitcast(other, HALF)), I16)


def _add_bfloat(b: CodeBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
    """Return the float32 sum rounded to nearest even; NaN stays NaN."""
    wide = [b.bitcast(b.shl(b.zext(item, I32), 16), FLOAT) for item in (one, other)]
    total = b.fadd(*wide)
    bits = b.bitcast(total, I32)
    odd = b.and_(b.lshr(bits, 16), 1)
    rounded = b.add(bits, b.add(odd, 0x7FFF))
    kept = b.select(b.fcmp_unordered("uno", total, total), b.or_(bits, 0x400000), rounded)
    return b.trunc(b.lshr(kept, 16), I16)


OPERATIONS: dict[str, Operation] = {
    "swap": lambda b, old, data, _: data,
    "cmpswap": _compare_store,
    "cmpswap_f": _compare_store_float,
    "wrap": _wrap,
    "add": lambda b, old, data, _: b.add(old, data),
    "sub": lambda b, old, data, _: b.sub(old, data),
    "rsub": lambda b, old, data, _: b.sub(data, old),
    "sub_clamp": _subtract_clamped,
    "cond_sub": _conditional_subtract,
    "min_i": _minimum("i", "<"),
    "min_u": _minimum("u", "<"),
    "max_i": _minimum("i", ">"),
    "max_u": _minimum("u", ">"),
    "and": lambda b, old, data, _: b.and_(old, data),
    "or": lambda b, old, data, _: b.or_(old, data),
    "xor": lambda b, old, data, _: b.xor(old, data),
    "inc": _increment,
    "dec": _decrement,
    "mskor": _masked_or,
    "condxchg": _exchange_if,
    "add_f": _add_float,
    "min_num": _number("<"),
    "max_num": _number(">"),
    "min_f": _signalling_number("<"),
    "max_f": _signalling_number(">"),
    "pk_add_f16": _pairs(_add_half),
    "pk_add_bf16": _pairs(_add_bfloat),
}

# name as in "atomic_NAME" and "ds_NAME": operation, bytes
_PLAIN = ("add", "sub", "inc", "dec")
_ORDERED = ("min", "max")
_BITS = ("and", "or", "xor")
COMMON: dict[str, tuple[str, int]] = {
    **{f"{name}_u{8 * size}": (name, size) for name in _PLAIN for size in (4, 8)},
    **{f"{name}_{k}{8 * size}": (f"{name}_{k}", size) for name in _ORDERED for k in "iu" for size in (4, 8)},
    **{f"{name}_b{8 * size}": (name, size) for name in _BITS for size in (4, 8)},
    "cond_sub_u32": ("cond_sub", 4),
    "sub_clamp_u32": ("sub_clamp", 4),
    "min_num_f32": ("min_num", 4),
    "max_num_f32": ("max_num", 4),
    "min_f32": ("min_f", 4),
    "max_f32": ("max_f", 4),
    "add_f32": ("add_f", 4),
    "pk_add_f16": ("pk_add_f16", 4),
    "pk_add_bf16": ("pk_add_bf16", 4),
}
"""Atomic operations of both global memory and LDS."""
