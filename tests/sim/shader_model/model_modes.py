"""Float modes: exact rationals, rounded in the direction MODE asks for, and denormals flushed (manual 3.4, 7.2.4).

MODE[1:0] rounds 32-bit results, [3:2] those of 16 and 64 bits; 0 nearest even, 1 up, 2 down, 3 towards zero. [5:4]
and [7:6] keep denormals of those formats: the lower bit of sources, the upper one of results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from sim.shader_model import model_floats as floats

Array = np.ndarray
Term = tuple[Fraction, bool]  # a number and its sign, which a zero has too
UP, DOWN, ZERO = 1, 2, 3
_FORMATS = {"f16": (np.float16, np.uint16, 10, 5), "f32": (np.float32, np.uint32, 23, 8),
            "f64": (np.float64, np.uint64, 52, 11)}  # fmt: skip


def rounding_of(mode: int, kind: str) -> int:
    return mode >> (0 if kind == "f32" else 2) & 3


def is_flushed(mode: int, kind: str, *, result: bool) -> bool:
    return not mode >> (4 if kind == "f32" else 6) & (2 if result else 1)


def flush(value: Array, kind: str) -> Array:
    """Denormals to zeros of their sign."""
    _, unsigned, fraction, exponent = _FORMATS[kind]
    bits = value.view(unsigned)
    field = unsigned((1 << exponent) - 1 << fraction)
    sign = unsigned(1 << fraction + exponent)
    return np.where(bits & field == 0, bits & sign, bits).astype(unsigned).view(value.dtype)


def flushed_sources(mode: int, kinds: Sequence[str], values: Sequence[Array]) -> list[Array]:
    return [
        flush(value, kind) if kind in _FORMATS and is_flushed(mode, kind, result=False) else value
        for kind, value in zip(kinds, values, strict=True)
    ]


def round_exact(exact: Fraction, kind: str, rounding: int) -> float:
    """A number that is not 0, in the format."""
    _, _, fraction, exponent = _FORMATS[kind]
    bias = (1 << exponent - 1) - 1
    power = exact.numerator.bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** power:
        power -= 1
    step = Fraction(2) ** (max(power, 1 - bias) - fraction)
    steps = exact / step
    whole = {0: round, UP: math.ceil, DOWN: math.floor, ZERO: math.trunc}[rounding](steps)
    largest = (2 - Fraction(2) ** -fraction) * Fraction(2) ** bias
    value = whole * step
    if abs(value) > largest:
        outwards = rounding == 0 or rounding == (UP if value > 0 else DOWN)
        size = math.inf if outwards else float(largest)
        return size if value > 0 else -size
    return math.copysign(float(value), exact)


def add_terms(terms: Sequence[Term], rounding: int, kind: str) -> float:
    exact = sum((number for number, _ in terms), Fraction(0))
    if exact:
        return round_exact(exact, kind, rounding)
    signs = {sign for _, sign in terms}
    negative = signs == {True} if len(signs) == 1 and not any(number for number, _ in terms) else rounding == DOWN
    return -0.0 if negative else 0.0


def multiply_terms(a: Term, b: Term) -> Term:
    return a[0] * b[0], a[1] ^ b[1]


def negate_term(a: Term) -> Term:
    return -a[0], not a[1]


def floor_term(a: Term) -> Term:
    return Fraction(math.floor(a[0])), a[1]


EXACT: dict[str, Callable[..., list[Term]]] = {
    "add": lambda a, b: [a, b],
    "sub": lambda a, b: [a, negate_term(b)],
    "subrev": lambda a, b: [b, negate_term(a)],
    "mul": lambda a, b: [multiply_terms(a, b)],
    "mul_dx9_zero": lambda a, b: [multiply_terms(a, b) if a[0] and b[0] else (Fraction(0), False)],
    **dict.fromkeys(("fma", "fmac", "fmamk", "fmaak"), lambda a, b, c: [multiply_terms(a, b), c]),
    "fma_dx9_zero": lambda a, b, c: [multiply_terms(a, b) if a[0] and b[0] else (Fraction(0), False), c],
    "scaled": lambda a, b, c, n: [
        (number * Fraction(2) ** int(n[0]), sign) for number, sign in (multiply_terms(a, b), c)
    ],
    "ldexp": lambda a, n: [(a[0] * Fraction(2) ** max(-3000, min(3000, int(n[0]))), a[1])],
    "fract": lambda a: [a, negate_term(floor_term(a))],
    "cvt": lambda a: [a],
}
"""Operations that round, as the sum that is rounded."""


def operation_name(name: str) -> str:
    """v_add_f32 and s_add_f32 are "add", v_cvt_f16_f32 is "cvt"; "" for what rounds to nearest in every mode."""
    bare = name[2:].removeprefix("pk_").rsplit("_f", 1)[0]
    if name[2:] in ("cvt_f32_i32", "cvt_f32_u32", "cvt_f16_f32", "cvt_f32_f64", "cvt_f16_u16", "cvt_f16_i16"):
        return "cvt"
    return bare if bare in EXACT and bare != "cvt" else ""


def compute_rounded(name: str, kind: str, rounding: int, nearest: Array, values: Sequence[Array]) -> Array:
    """`nearest`, the result to nearest even, rounded instead as asked where it is a sum of numbers."""
    exact = EXACT.get(operation_name(name))
    if exact is None or not rounding:
        return nearest
    out = np.array(nearest, _FORMATS[kind][0])
    finite = np.all([np.isfinite(value) for value in values], axis=0)
    for lane in np.flatnonzero(finite):
        terms = [(Fraction(value[lane].item()), bool(np.signbit(value[lane]))) for value in values]
        out[lane] = add_terms(exact(*terms), rounding, kind)
    if operation_name(name) == "fract":
        out = np.minimum(out, np.nextafter(out.dtype.type(1), out.dtype.type(0))) + out.dtype.type(0)
    return out


UNFLUSHED = frozenset(("class_f16", "class_f32", "class_f64"))
"""What takes floats as bits."""


def compute_in_mode(
    mode: int,
    name: str,
    result: str,
    kinds: Sequence[str],
    function: Callable[..., Array],
    values: Sequence[Array],
) -> Array:
    """`function` of the values, as the mode has it; the result's own denormals are `flush_result`'s."""
    if name == "v_cvt_pk_u8_f32":
        return function(*flushed_sources(mode, kinds, values), rounding=mode & 3)
    if name == "v_cvt_pk_rtz_f16_f32":
        packed = function(*flushed_sources(mode, kinds, values))
        halves = np.ascontiguousarray(packed).view(np.float16)
        return (flush(halves, "f16") if is_flushed(mode, "f16", result=True) else halves).view(np.uint32)
    if mode & (0xFF | FP16_OVFL) == 0xF0 or name in UNFLUSHED:
        return function(*values)
    if name == "v_pk_fmac_f16":
        return packed_fmac(mode, values)
    values = flushed_sources(mode, kinds, values)
    if name == "v_fma_dx9_zero_f32":  # an infinity times 0 is no infinity
        either = (values[0] == 0) | (values[1] == 0)
        values = [*(np.where(either, np.float32(0), value) for value in values[:2]), values[2]]
    near = function(*values)
    if result not in _FORMATS:
        return near
    if name == "v_div_fixup_f16":  # where the steps before overflowed, as the mode rounds: captured
        ordinary = np.isfinite(values[1]) & np.isfinite(values[2]) & (values[1] != 0)
        near = limit_overflow(mode, result, near, ordinary)
    output = compute_rounded(name, result, rounding_of(mode, result), near, values)
    output = flush_denormal_results(mode, name, result, np.asarray(output, _FORMATS[result][0]), values)
    sources = [value for value, kind in zip(values, kinds, strict=True) if kind in _FORMATS]
    argument = np.any([np.isinf(value) for value in sources], axis=0) if sources else False
    return np.where(is_saturating(mode) & (result == "f16") & ~argument, _largest_for_infinity(output), output)


def _largest_for_infinity(value: Array) -> Array:
    largest = np.finfo(value.dtype).max
    return np.where(np.isinf(value), np.copysign(largest, value), value).astype(value.dtype)


def flush_denormal_results(mode: int, name: str, kind: str, array: Array, values: Sequence[Array]) -> Array:
    """Flush results to zero if the exact result, rounded with unlimited exponent, is below the normal range, even
    if it was rounded up into it (captured).
    """
    exact = EXACT.get(operation_name(name))
    if exact is None or not is_flushed(mode, kind, result=True):
        return array
    tiny = np.finfo(array.dtype).tiny
    out = array.copy()
    for lane in np.flatnonzero(np.abs(array) == tiny):
        terms = [(Fraction(value[lane].item()), bool(np.signbit(value[lane]))) for value in values]
        number = sum((number for number, _ in exact(*terms)), Fraction(0))
        scaled = round_exact(number * 2**12, kind, rounding_of(mode, kind))
        if abs(scaled) < float(tiny) * 2.0**12:
            out[lane] = np.copysign(0, array[lane])
    return out


FP16_OVFL = 1 << 23
_INEXACT = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
_CHOICES = ("min", "max", "med3")


def is_saturating(mode: int) -> bool:
    return bool(mode & FP16_OVFL)


def instruction_mode(mode: int, name: str) -> int:
    """Return the effective mode of an instruction: functions round to nearest, and selections do not flush results
    (both captured).
    """
    stem = name.removeprefix("v_").removeprefix("s_").removeprefix("pk_")
    if stem.startswith(_INEXACT):
        return mode & ~15
    if stem.startswith("fma_dx9"):
        return mode & ~0x30  # flushes always
    return mode | 0xA0 if stem.startswith(_CHOICES) else mode


def omod_mode(mode: int, omod: int) -> int:
    """omod makes a zero of what is tiny, whatever the mode."""
    return mode & ~0xA0 if omod else mode


def limit_overflow(mode: int, kind: str, scaled: Array, was_finite: Array) -> Array:
    """Return the result of an overflow by omod: infinite only if rounding is towards it, never with FP16_OVFL."""
    over = np.isinf(scaled) & was_finite
    if not (kind == "f16" and is_saturating(mode)):
        toward = {0: True, UP: scaled > 0, DOWN: scaled < 0, ZERO: False}[rounding_of(mode, kind)]
        over = over & ~np.asarray(toward, bool)
    return np.where(over, _largest_for_infinity(scaled), scaled)


def packed_fmac(mode: int, values: Sequence[Array]) -> Array:
    out = np.zeros(len(values[0]), np.uint32)
    for shift in (0, 16):
        halves = [(value >> np.uint32(shift)).astype(np.uint16).view(np.float16) for value in values]
        result = compute_in_mode(mode, "v_fmac_f16", "f16", ("f16",) * 3, floats.fma16, halves)
        bits = flush_result(mode, "f16", np.asarray(result, np.float16).view(np.uint16))
        out |= bits.astype(np.uint32) << np.uint32(shift)
    return out


def flush_result(mode: int, kind: str, bits: Array) -> Array:
    """Unsigned bits of a float result."""
    return flush(bits, kind) if kind in _FORMATS and is_flushed(mode, kind, result=True) else bits
