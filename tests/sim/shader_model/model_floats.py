"""Exact floating point over NumPy arrays: what one correctly rounded operation gives.

float64 sums are rounded to odd before they are narrowed, so that narrowing rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np

Array = np.ndarray
F16, F32, F64 = np.float16, np.float32, np.float64
QUIET = {F16: 0x0200, F32: 0x0040_0000, F64: 0x0008_0000_0000_0000}
_BITS = {F16: np.uint16, F32: np.uint32, F64: np.uint64}
_MANTISSA = {F16: 10, F32: 23, F64: 52}


def to_odd(high: Array, low: Array) -> Array:
    """Return the exact sum high + low (high is the nearest float64) rounded to odd."""
    bits = high.view(np.uint64)
    move = (low != 0) & (bits & np.uint64(1) == 0) & np.isfinite(high)
    return np.where(move, np.nextafter(high, np.where(low > 0, np.inf, -np.inf)), high)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b of float64, rounded to odd: narrowing it to float32 or float16 afterwards rounds once."""
    total = a + b
    virtual = total - a
    low = (a - (total - virtual)) + (b - virtual)
    return to_odd(total, np.where(np.isfinite(total), low, 0.0))


def fma32(a: Array, b: Array, c: Array) -> Array:
    """float32 a * b + c, rounded once."""
    return sum_to_odd(a.astype(F64) * b.astype(F64), c.astype(F64)).astype(F32)  # the product is exact: 48 bits


def fma32_scaled(a: Array, b: Array, c: Array, power: Array) -> Array:
    """(a * b + c) * 2**power, rounded once."""
    total = sum_to_odd(a.astype(F64) * b.astype(F64), c.astype(F64))
    return np.ldexp(total, power).astype(F32)


def fma_to_half(a: Array, b: Array, c: Array) -> Array:
    """float32 a * b + c as float16, rounded once."""
    return sum_to_odd(a.astype(F64) * b.astype(F64), c.astype(F64)).astype(F16)


def fma16(a: Array, b: Array, c: Array) -> Array:
    return sum_to_odd(a.astype(F64) * b.astype(F64), c.astype(F64)).astype(F16)


def fma64(a: Array, b: Array, c: Array, power: Array | None = None) -> Array:
    """float64 (a * b + c) * 2**power, rounded once, lane by lane in exact rationals."""
    out = a * b + c  # right wherever a factor is infinite or something no number
    out = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, out)
    for lane in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane]))
        if power is not None:
            exact *= Fraction(2) ** int(power[lane])
        if exact:
            out[lane] = nearest64(exact)
        elif a[lane] and b[lane]:
            out[lane] = 0.0  # a cancellation; the sign of a sum of zeros is right already
    return out


def nearest64(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def quiet_nans(value: Array, dtype: type) -> Array:
    """NaNs made quiet, the rest as it is."""
    bits = value.view(_BITS[dtype])
    return np.where(np.isnan(value), bits | _BITS[dtype](QUIET[dtype]), bits).astype(_BITS[dtype]).view(dtype)


def is_signalling(value: Array, dtype: type) -> Array:
    return np.isnan(value) & (value.view(_BITS[dtype]) & _BITS[dtype](QUIET[dtype]) == 0)


def flush_denormals(value: Array) -> Array:
    """float32 denormals to zero of their sign."""
    bits = value.view(np.uint32)
    return np.where(bits & 0x7F80_0000 == 0, bits & 0x8000_0000, bits).astype(np.uint32).view(F32)


def flush_both_sides(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Compute a transcendental function with denormal inputs and results flushed."""
    return lambda x: flush_denormals(function(flush_denormals(x)))


def correctly_rounded(
    approximate: Callable[[Array], Array], exact: Callable[[mpmath.mpf], mpmath.mpf], to: type = F32
) -> Callable[[Array], Array]:
    """`approximate` in float64 (good to a few of its units); where that is too near to a tie, `exact` decides."""
    cut = 52 - _MANTISSA[to]

    def round_correctly(x: Array) -> Array:
        wide = approximate(x.astype(F64))
        out = wide.astype(to)
        tail = wide.view(np.uint64) & np.uint64((1 << cut) - 1)
        half = 1 << cut - 1
        near = np.abs(tail.astype(np.int64) - half) < 64
        tiny = (np.abs(wide) < float(np.finfo(to).tiny) * 2) & (wide != 0)
        for lane in np.flatnonzero((near | tiny) & np.isfinite(wide)):
            with mpmath.workprec(200):
                out[lane] = round_exact(exact(mpmath.mpf(float(x[lane]))), to)
        return out

    return round_correctly


def round_exact(value: mpmath.mpf, to: type) -> float:
    """Round an mpmath number to the nearest value of `to`, ties to even, including denormals."""
    if value == 0:
        return to(0.0)
    exact = Fraction(int(value.man) * (-1 if value < 0 and value.man > 0 else 1)) * Fraction(2) ** int(value.exp)
    step = Fraction(2) ** (max(math.frexp(float(abs(exact)))[1] - 1, int(np.finfo(to).minexp)) - _MANTISSA[to])
    return to(float(round(exact / step) * step))


def log2_with_nan(x: Array) -> Array:
    """np.log2, and the negative NaN of an invalid operation below 0: NumPy's sign of it depends on the CPU."""
    return np.where(x < 0, np.uint64(0xFFF8 << 48).view(F64), np.log2(x))


exp2 = flush_both_sides(correctly_rounded(np.exp2, lambda x: mpmath.power(2, x)))
log2 = flush_both_sides(correctly_rounded(log2_with_nan, lambda x: mpmath.log(x, 2)))
rcp = flush_both_sides(correctly_rounded(lambda x: 1.0 / x, lambda x: 1 / x))
rsq = flush_both_sides(correctly_rounded(lambda x: 1.0 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x)))
sqrt = flush_both_sides(correctly_rounded(np.sqrt, mpmath.sqrt))


def to_integer(value: Array, low: int, high: int) -> Array:
    """Truncated and saturated; NaN is 0. An int64 array."""
    wide = np.trunc(value.astype(F64))
    return np.where(np.isnan(wide), 0.0, np.clip(wide, float(low), float(high))).astype(np.int64)


def min_num(a: Array, b: Array) -> Array:
    """Return the smaller operand; a number is preferred to a NaN, and -0 is below +0 (manual, V_MIN_NUM_F32)."""
    return _select_number(a, b, (a < b) | (a == b) & np.signbit(a))


def max_num(a: Array, b: Array) -> Array:
    return _select_number(a, b, (a > b) | (a == b) & np.signbit(b))


def _select_number(a: Array, b: Array, take_a: Array) -> Array:
    out = np.where(take_a, a, b)
    out = np.where(np.isnan(b), a, out)
    out = np.where(np.isnan(a), b, out)
    return np.where(np.isnan(a) & np.isnan(b), quiet_nans(a, a.dtype.type), out)  # captured: the first, quieted


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller operand; NaN if either is NaN (manual, V_MINIMUM_F32)."""
    out = np.where((a < b) | (a == b) & np.signbit(a), a, b)
    return _first_nan(a, b, out)


def _first_nan(a: Array, b: Array, out: Array) -> Array:
    """Return the first NaN in order of sources, quieted; a signalling NaN has no precedence (captured)."""
    kind = a.dtype.type
    return np.where(np.isnan(a), quiet_nans(a, kind), np.where(np.isnan(b), quiet_nans(b, kind), out))


def maximum(a: Array, b: Array) -> Array:
    out = np.where((a > b) | (a == b) & np.signbit(b), a, b)
    return _first_nan(a, b, out)


def toward_zero16(value: Array) -> Array:
    """float32 to float16, rounded toward zero: the largest finite stands for what overflows."""
    out = value.astype(F16)
    wide = out.astype(F32)
    too_far = (np.abs(wide) > np.abs(value)) & ~np.isnan(value)
    return np.where(too_far, np.nextafter(out, F16(0.0)), out).astype(F16)


def bf16_to_f32(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(F32)


def f32_to_bf16(value: Array) -> Array:
    """Round to nearest even, NaN kept quiet."""
    bits = np.ascontiguousarray(value, F32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(value), bits >> 16 | 0x40, rounded).astype(np.uint16)


def small_to_f32(bits: Array, exponent_bits: int) -> Array:
    """Convert FP8 (E4M3: no infinity, S.1111.111 is NaN) or BF8 (E5M2) to float32, exactly."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    code = bits.astype(np.int64) & 0xFF
    exponent, fraction = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    top = (1 << exponent_bits) - 1
    magnitude = np.where(
        exponent == 0,
        np.ldexp(fraction.astype(F64), 1 - bias - mantissa_bits),
        np.ldexp((fraction + (1 << mantissa_bits)).astype(F64), exponent - bias - mantissa_bits),
    )
    if exponent_bits == 4:
        magnitude = np.where((exponent == top) & (fraction == 7), np.nan, magnitude)
    else:
        magnitude = np.where(exponent == top, np.where(fraction == 0, np.inf, np.nan), magnitude)
    out = np.where(code & 0x80, -magnitude, magnitude).astype(F32)
    return np.where(np.isnan(out), np.array([0xFFC00000], np.uint32).view(F32), out)  # captured


def f32_to_small(
    value: Array, exponent_bits: int, *, random: Array | None = None, saturates: bool = False
) -> Array:
    """Round to nearest even, or add the upper bits of `random` (uint32) below the kept bits and truncate. Overflow
    gives NaN (FP8) or infinity (BF8), or the largest number if it `saturates`. Captured.
    """
    mantissa_bits = 7 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    sign = np.signbit(value).astype(np.int64) << 7
    magnitude = np.abs(value.astype(F64))
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    _, exponent = np.frexp(finite)
    exponent = np.where(finite == 0, 1 - bias, np.maximum(exponent - 1, 1 - bias))
    if random is None:
        steps = np.rint(np.ldexp(finite, mantissa_bits - exponent)).astype(np.int64)  # rint: ties to even
    else:
        drop = 23 - mantissa_bits
        fine = np.floor(np.ldexp(finite, 23 - exponent)).astype(np.int64)
        steps = fine + (random.astype(np.int64) >> 32 - drop) >> drop
    code = steps + ((exponent - (1 - bias)) << mantissa_bits)
    nan, over = (0xFF, 0x7F) if exponent_bits == 4 else (0xFE, 0x7C)  # NaNs as captured
    largest = 0x7E if exponent_bits == 4 else 0x7B
    code = np.where(code > largest, largest if saturates else over, code)
    code = np.where(np.isinf(value), over, code)
    return np.where(np.isnan(value), nan, code | sign).astype(np.uint32)
