"""One step of the float dot products: 2 products (DOT2) or 4 (WMMA) of f16 or bf16 and an addend, rounded once.

The hardware does not use fused multiply-adds: it aligns products by flooring and adds them as integers. Source:
captures of rocjitsu's authors on an R9700 (`shared/gfx12_dot.h`, `tests/fixtures/float_dot` of ROCm/rocm-systems),
121 DOT2 and 24 WMMA rows. They do not include an infinite product with an addend of the opposite infinity; it is
treated as an invalid operation here.

1. A NaN factor gives a distinct NaN. Otherwise infinity times zero, and products of both infinities, give the
   usual NaN. Otherwise a NaN addend is returned quieted.
2. Products are exact. The grid of a product is 2**(ea + eb - 24), e = max(exponent field, 1) - bias. A zero has
   no grid.
3. Products are paired like the halves of a register; both are floored to the larger grid of the pair and added.
4. The grid of the step is the maximum of the products' grids and 2**(max(F, exponent of the addend's leading bit)
   - 26), where F is the smallest normal exponent of the result. Pairs and addend are floored to it and added. A
   negative addend that is shifted out completely counts as -1 only if the grid is at or below 2**F.
5. The sum is rounded to nearest even, keeping denormals; zero is +0. A packed bf16 result is the truncated 32-bit
   result.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.alu.vector import Value, half_of_double, largest_for_infinity, outline
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I1, I16, I32, I64, constant

_NONE = -4096  # the grid of a zero
_GUARD, _ADDEND_GUARD = 24, 26


@dataclass(frozen=True, slots=True)
class _Format:
    fraction: int
    exponent: int
    smallest: int  # exponent of the smallest normal number
    factor_nan: int  # the result of a NaN factor
    invalid: int


_FORMATS = {
    "f16": _Format(10, 5, -14, 0xFE3D, 0xFE00),
    "bf16": _Format(7, 8, -126, 0xFFFD, 0xFFC0),
    "f32": _Format(23, 8, -126, 0xFFC00A3D, 0xFFC00000),
}


@dataclass(frozen=True, slots=True)
class _Number:
    """Vectors of numbers (<W x i32> each): signed significand, exponent of its unit, and class."""

    significand: Value
    unit: Value
    top: Value  # exponent of the leading bit of a normal number, of a denormal the smallest exponent
    nan: Value
    infinite: Value
    zero: Value
    negative: Value


def dot_step(e: Emitter, kind: str, result: str, a: list[Value], b: list[Value], addend: Value) -> Value:
    """Emit a call that computes one dot-product step. Return the result bits as <W x i32>, in the low half for 16
    bits.

    The inputs are registers of two halves and an addend. `kind` is the format of the factors, f16 or bf16.
    `result` is f32, f16 or bf16. `addend` has the format of the result. The step is emitted as a separate
    function.
    """
    count = len(a)

    def body(e: Emitter, *words: Value) -> Value:
        return _step(e, kind, result, words[:count], words[count : 2 * count], words[-1])

    saturates = result == "f16" and e.mode.saturates
    name = f"zrt.dot{2 * count}.{kind}.{result}.{e.wave}{'.saturating' * saturates}"
    return outline(e, name, addend.type, body, *a, *b, addend)


def _decode_operand(e: Emitter, bits: Value, of: _Format) -> _Number:
    b = e.b
    width = of.fraction + of.exponent
    size = b.and_(bits, (1 << width) - 1)
    field = b.lshr(size, of.fraction)
    low = b.and_(size, (1 << of.fraction) - 1)
    normal = b.unequal(field, 0)
    magnitude = b.or_(low, b.select(normal, 1 << of.fraction, constant(0, bits.type)))
    negative = b.unequal(b.and_(bits, 1 << width), 0)
    top = b.add(b.select(normal, field, 1), of.smallest - 1)
    infinity = (1 << of.exponent) - 1 << of.fraction
    return _Number(
        significand=b.select(negative, b.sub(0, magnitude), magnitude),
        unit=b.sub(top, of.fraction),
        top=top,
        nan=b.icmp_unsigned(">", size, infinity),
        infinite=b.equal(size, infinity),
        zero=b.equal(size, 0),
        negative=negative,
    )


def _step(e: Emitter, kind: str, result: str, a: tuple[Value, ...], b: tuple[Value, ...], addend: Value) -> Value:
    of = _FORMATS[kind]
    pairs = []
    factor_nan = invalid = plus = minus = constant(0, e.b.lanes(I1))
    for left, right in zip(a, b, strict=True):
        products = []
        for shift in (0, 16):
            x, y = (_decode_operand(e, e.b.and_(e.b.lshr(word, shift), 0xFFFF), of) for word in (left, right))
            zero = e.b.or_(x.zero, y.zero)
            infinite = e.b.or_(x.infinite, y.infinite)
            negative = e.b.xor(x.negative, y.negative)
            factor_nan = e.b.any(factor_nan, x.nan, y.nan)
            invalid = e.b.or_(invalid, e.b.and_(infinite, zero))
            plus = e.b.or_(plus, e.b.and_(infinite, e.b.not_(negative)))
            minus = e.b.or_(minus, e.b.and_(infinite, negative))
            product = e.b.mul(x.significand, y.significand)
            grid = e.b.select(zero, _NONE, e.b.sub(e.b.add(x.top, y.top), _GUARD))
            products.append((e.b.shl(product, _GUARD - 2 * of.fraction), grid))
        pairs.append(_pair(e, products))
    out = _FORMATS[result]
    c = _decode_operand(e, addend, out)
    total = _sum(e, pairs, c, of=out)
    bits = _round_sum(e, *total, result)
    invalid = e.b.or_(invalid, e.b.and_(plus, minus))
    for product, other in ((plus, c.negative), (minus, e.b.not_(c.negative))):
        invalid = e.b.or_(invalid, e.b.all(product, c.infinite, other, e.b.not_(c.nan)))
    infinity = (1 << out.exponent) - 1 << out.fraction
    sign = 1 << out.fraction + out.exponent
    for condition, value in (
        (c.infinite, addend),
        (plus, constant(infinity, bits.type)),
        (minus, constant(infinity | sign, bits.type)),
        (c.nan, e.b.or_(addend, 1 << out.fraction - 1)),
        (invalid, constant(out.invalid, bits.type)),
        (factor_nan, constant(out.factor_nan, bits.type)),
    ):
        bits = e.b.select(condition, value, bits)
    return bits


def _shift_floor(e: Emitter, value: Value, by: Value) -> Value:
    """Return value / 2**by, rounded towards -infinity. `by` may exceed the width of the value."""
    return e.b.ashr(value, e.b.intrinsic("llvm.umin", by.type, by, constant(31, by.type)))


def _larger(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.intrinsic("llvm.smax", a.type, a, b)


def _pair(e: Emitter, products: list[tuple[Value, Value]]) -> tuple[Value, Value]:
    grid = _larger(e, products[0][1], products[1][1])
    parts = [_shift_floor(e, product, e.b.sub(grid, own)) for product, own in products]
    return e.b.add(*parts), grid


def _sum(e: Emitter, pairs: list[tuple[Value, Value]], c: _Number, of: _Format) -> tuple[Value, Value]:
    """Return the sum as (integer, exponent of its unit). Products have 26 bits, so 32 bits do not overflow."""
    b = e.b
    size = b.select(c.negative, b.sub(0, c.significand), c.significand)
    leading = b.sub(31, b.intrinsic("llvm.ctlz", size.type, size, I1(0)))  # -1 of a zero
    lead = _larger(e, b.add(leading, c.unit), constant(of.smallest, size.type))
    grid = b.sub(lead, _ADDEND_GUARD)
    for _, own in pairs:
        grid = _larger(e, grid, own)
    down = b.sub(grid, c.unit)
    none = constant(0, size.type)
    rise = b.intrinsic("llvm.smax", down.type, b.sub(0, down), none)
    by = _larger(e, down, none)
    kept = _shift_floor(e, b.shl(c.significand, rise), by)
    gone = b.equal(_shift_floor(e, b.shl(size, rise), by), 0)
    drops = b.all(c.negative, gone, b.icmp_signed(">", grid, of.smallest))
    total = b.select(drops, none, kept)
    for value, own in pairs:
        total = b.add(total, _shift_floor(e, value, b.sub(grid, own)))
    return total, grid


def _round_sum(e: Emitter, total: Value, grid: Value, result: str) -> Value:
    b = e.b
    scale = b.bitcast(b.shl(b.add(b.sext(grid, b.lanes(I64)), 1023), 52), b.lanes(DOUBLE))
    exact = b.fmul(b.sitofp(total, b.lanes(DOUBLE)), scale)
    words = b.lanes(I32)
    if result == "f16":
        half: ir.Value = half_of_double(e, exact)
        assert half.type.element is HALF
        half = largest_for_infinity(e, half, ())
        return b.zext(b.bitcast(half, b.lanes(I16)), words)
    bits = b.bitcast(b.fptrunc(exact, b.lanes(FLOAT)), words)
    return b.lshr(bits, 16) if result == "bf16" else bits
