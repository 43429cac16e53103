"""The NumPy model's arithmetic against exact rationals: an oracle has to be right where it is hard."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from instruction_inputs import random_values
from sim.shader_model import model_floats as floats
from support import Counts

Array = np.ndarray
KINDS = {np.float16: (np.uint16, 10), np.float32: (np.uint32, 23)}


def nearest_float(exact: Fraction, kind: type) -> np.floating:
    """Round a rational to the nearest float, ties to even, by counting representable values."""
    low, high = kind(-np.inf), kind(np.inf)
    with np.errstate(over="ignore"):
        guess = kind(float(exact))
        candidates = {float(np.nextafter(guess, low)), float(guess), float(np.nextafter(guess, high))}
    largest = Fraction(float(np.finfo(kind).max))
    step = largest - Fraction(float(np.nextafter(kind(np.finfo(kind).max), kind(0))))
    if abs(exact) >= largest + step / 2:
        return high if exact > 0 else low
    finite = [c for c in candidates if np.isfinite(c)]
    unsigned = KINDS[kind][0]
    return kind(min(finite, key=lambda c: (abs(Fraction(c) - exact), int(np.array(c, kind).view(unsigned)) & 1)))


def random_triples(kind: type, count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return difficult numbers, and sums that nearly cancel or are close to ties."""
    unsigned, mantissa = KINDS[kind]
    name = f"f{8 * np.dtype(kind).itemsize}"
    a, b, c = (random_values(name, rng, count).astype(unsigned).view(kind).copy() for _ in range(3))
    with np.errstate(all="ignore"):
        near = (a.astype(float) * b.astype(float)).astype(kind)
        c[::3] = -near[::3]
        tiny = kind(2.0 ** -(2 * mantissa if kind is np.float32 else mantissa))
        c[1::3] = near[1::3] * tiny
    return a, b, c


@pytest.mark.parametrize("kind", KINDS)
def test_fused_multiply_add_rounds_once(kind: type, slow_counts: Counts) -> None:
    a, b, c = random_triples(kind, slow_counts(2000, 50_000), np.random.default_rng(3))
    with np.errstate(all="ignore"):
        got = (floats.fma16 if kind is np.float16 else floats.fma32)(a, b, c)
    tried = 0
    for x, y, z, result in zip(a, b, c, got, strict=True):
        if np.isfinite(x) and np.isfinite(y) and np.isfinite(z):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            assert result == nearest_float(exact, kind), (float(x), float(y), float(z))
            tried += 1
    assert tried > 1000


@pytest.mark.parametrize("name", ["exp2", "log2", "rcp", "rsq", "sqrt"])
def test_transcendentals_are_correctly_rounded(name: str, slow_counts: Counts) -> None:
    rng = np.random.default_rng(4)
    x = np.abs((rng.standard_normal(slow_counts(300, 5000)) * 30).astype(np.float32))
    x = np.where(np.arange(len(x)) % 2, x, -x).astype(np.float32) if name == "exp2" else x
    exact = {
        "exp2": lambda v: mpmath.power(2, v), "log2": lambda v: mpmath.log(v, 2), "rcp": lambda v: 1 / v,
        "rsq": lambda v: 1 / mpmath.sqrt(v), "sqrt": mpmath.sqrt,
    }[name]  # fmt: skip
    got = getattr(floats, name)(x)
    with mpmath.workprec(300):
        for value, result in zip(x, got, strict=True):
            want = exact(mpmath.mpf(float(value)))
            below, above = np.nextafter(result, np.float32(-np.inf)), np.nextafter(result, np.float32(np.inf))
            error = abs(mpmath.mpf(float(result)) - want)
            assert error <= abs(mpmath.mpf(float(below)) - want), float(value)
            assert error <= abs(mpmath.mpf(float(above)) - want), float(value)


@pytest.mark.parametrize("exponent_bits, largest", [(4, 448.0), (5, 57344.0)])
def test_small_floats_round_trip_and_round_to_nearest(exponent_bits: int, largest: float) -> None:
    codes = np.arange(256, dtype=np.uint32)
    decoded = floats.small_to_f32(codes, exponent_bits)
    finite = np.isfinite(decoded)
    assert np.abs(decoded[finite]).max() == largest
    assert (floats.f32_to_small(decoded[finite], exponent_bits) == codes[finite]).all()
    table = np.unique(decoded[finite & (decoded >= 0)]).astype(float)
    x = np.random.default_rng(5).uniform(0, largest, size=500).astype(np.float32)
    x = np.concatenate([x, ((table[1:] + table[:-1]) / 2).astype(np.float32)])  # ties
    back = floats.small_to_f32(floats.f32_to_small(x, exponent_bits), exponent_bits).astype(float)
    distance = np.abs(table[None, :] - x[:, None].astype(float)).min(axis=1)
    assert (np.abs(back - x) == distance).all()
    even = floats.f32_to_small(x[500:], exponent_bits) & 1
    assert not even.any(), "ties go to the even code"


def test_halves_rounded_toward_zero_never_grow() -> None:
    x = random_values("f32", np.random.default_rng(6), 5000).view(np.float32)
    x = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        half = floats.toward_zero16(x)
        above = np.nextafter(half, np.where(np.signbit(x), np.float16(-np.inf), np.float16(np.inf)))
    assert np.isfinite(half).all() and (np.abs(half.astype(float)) <= np.abs(x.astype(float))).all()
    assert (np.abs(above.astype(float)) > np.abs(x.astype(float))).all()
