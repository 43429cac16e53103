"""canonical-1's exp and log: fixed float32 operations, no fma, so any machine computes the same bits.

Coefficients: minimax fits (float64, against 40-digit mpmath), each rounded to float32 before the next ones were
fitted. Everything is written as hex floats because the bits are the definition; docs/canonical-1.md repeats them.
"""

from __future__ import annotations

import numpy as np


def _f32(text: str) -> np.float32:
    return np.float32(float.fromhex(text))


LOG2E = _f32("0x1.715476p+0")
LN2_HIGH = _f32("0x1.62e4p-1")  # 15 significant bits: n * LN2_HIGH is exact for |n| <= 149
LN2_LOW = _f32("0x1.7f7d1cp-20")
EXP_LIMIT = np.float32(87)
EXP_P5 = tuple(  # (exp(r) - 1 - r) / r^2 on |r| <= ln2 / 2, lowest power first
    map(_f32, ("0x1p-1", "0x1.555554p-3", "0x1.5554e8p-5", "0x1.11130ep-7", "0x1.6d4ccap-10", "0x1.9dfc08p-13"))
)
SQRT_HALF = _f32("0x1.6a09e6p-1")
LOG_P8 = tuple(  # (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1], lowest power first
    map(
        _f32,
        (
            "0x1.555548p-2",
            "-0x1.000006p-2",
            "0x1.99a47ap-3",
            "-0x1.555c4cp-3",
            "0x1.233b26p-3",
            "-0x1.fc2666p-4",
            "0x1.e6c688p-4",
            "-0x1.de16ecp-4",
            "0x1.147e3cp-4",
        ),
    )
)
ONE = np.float32(1)
HALF = np.float32(0.5)


def _horner(x: np.ndarray, coefficients: tuple[np.float32, ...]) -> np.ndarray:
    value = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient  # two ufuncs: the product rounds before the sum
    return value


@np.errstate(all="ignore")
def exp(x: np.ndarray) -> np.ndarray:
    """Compute exp of x clamped to [-87, 87], so the result is always positive and normal; NaN stays NaN; exp(0) is
    1."""
    x = np.minimum(np.maximum(np.asarray(x, np.float32), -EXP_LIMIT), EXP_LIMIT)
    n = np.rint(x * LOG2E)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = np.asarray(((r * r) * _horner(r, EXP_P5) + r) + ONE)
    exponent = np.where(np.isnan(n), 0, n).astype(np.int32)
    # y is in [0.70, 1.42]: the exponents can be added.
    return (y.view(np.int32) + (exponent << 23)).view(np.float32)


@np.errstate(all="ignore")
def log(x: np.ndarray) -> np.ndarray:
    """Compute the natural logarithm; log(1) is +0, of either zero -inf, below zero NaN."""
    x = np.asarray(x, np.float32)
    m, e = np.frexp(x)  # exact for denormals too
    low = m < SQRT_HALF
    m = np.where(low, m + m, m)
    n = (e - low).astype(np.float32)
    f = m - ONE
    f2 = f * f
    y = (f * f2) * _horner(f, LOG_P8)
    y = (y + n * LN2_LOW) - HALF * f2
    value = (f + y) + n * LN2_HIGH
    value = np.where(np.isposinf(x), x, value)
    value = np.where(x == 0, np.float32(-np.inf), value)
    return np.where((x < 0) | np.isnan(x), np.float32(np.nan), value)
