"""One step of the float dot products, over float64 arrays: 2 (DOT2) or 4 (WMMA) products and an addend.

From the page on what silicon does, apart from the engine: floors of scaled numbers here, shifted integers there.
"""

from __future__ import annotations

import numpy as np
from sim.shader_model import model_floats as floats

Array = np.ndarray
_SMALLEST = {"f16": -14, "bf16": -126, "f32": -126}
_NAN = {
    "f16": (0xFE3D, 0xFE00, 0x0200),
    "bf16": (0xFFFD, 0xFFC0, 0x0040),
    "f32": (0xFFC00A3D, 0xFFC00000, 0x00400000),
}
_EMPTY = -100_000


def to_numbers(bits: Array, kind: str) -> Array:
    """float64 of the bits of a format."""
    if kind == "f32":
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    half = bits.astype(np.uint16)
    return (half.view(np.float16) if kind == "f16" else floats.bf16_to_f32(half)).astype(np.float64)


def leading_exponent(value: Array, smallest: int) -> Array:
    """Return the exponent of the leading bit, at least `smallest`."""
    _, power = np.frexp(np.where(np.isfinite(value), value, 0.0))
    return np.where((value == 0) | ~np.isfinite(value), smallest, np.maximum(power - 1, smallest))


def scaled_floor(value: Array, grid: Array) -> Array:
    """Return the number of units 2**grid, rounded towards -infinity."""
    return np.floor(np.ldexp(value, np.minimum(-grid, 2000)))


def dot_step(a: Array, b: Array, addend: Array, kind: str, result: str, *, saturates: bool = False) -> Array:
    """uint32 bits of `result` [...] of the factors' bits [..., 2 or 4] and the addend's [...].

    `saturates`: sums that are too large for a half become the largest one (FP16_OVFL).
    """
    with np.errstate(all="ignore"):
        return _step(a, b, addend, kind, result, saturates)


def _step(a: Array, b: Array, addend: Array, kind: str, result: str, saturates: bool) -> Array:
    x, y, c = to_numbers(a, kind), to_numbers(b, kind), to_numbers(addend, result)
    product = x * y
    grids = np.where(
        product == 0, _EMPTY, leading_exponent(x, _SMALLEST[kind]) + leading_exponent(y, _SMALLEST[kind]) - 24
    )
    usual = np.where(np.isfinite(product), product, 0.0)
    smallest = _SMALLEST[result]
    grid = np.maximum(grids.max(axis=-1), leading_exponent(c, smallest) - 26)
    total = np.zeros(grid.shape)
    for pair in range(0, a.shape[-1], 2):
        own = np.maximum(grids[..., pair], grids[..., pair + 1])
        both = sum(scaled_floor(usual[..., pair + i], own) for i in range(2))
        total += np.floor(np.ldexp(both, np.maximum(own - grid, -2000)))
    finite_c = np.where(np.isfinite(c), c, 0.0)
    units = scaled_floor(finite_c, grid)
    lost = (finite_c < 0) & (scaled_floor(-finite_c, grid) == 0) & (grid > smallest)
    total += np.where(lost, 0.0, units)
    exact = np.ldexp(total, grid) + 0.0
    if result == "f16":
        exact = np.clip(exact, -65504.0, 65504.0) if saturates else exact
        bits = exact.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        bits = exact.astype(np.float32).view(np.uint32)
        bits = bits >> np.uint32(16) if result == "bf16" else bits
    factor_nan, invalid_nan, quiet = _NAN[result]
    plus, minus = (product == np.inf).any(axis=-1), (product == -np.inf).any(axis=-1)
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000}[result]
    sign = {"f16": 0x8000, "bf16": 0x8000, "f32": 0x80000000}[result]
    bits = np.where(np.isinf(c), addend, bits)
    bits = np.where(plus, infinity, np.where(minus, infinity | sign, bits))
    bits = np.where(np.isnan(c), addend | quiet, bits)
    one_nan = np.isnan(x).any(axis=-1) | np.isnan(y).any(axis=-1)
    invalid = (np.isnan(product) & ~np.isnan(x) & ~np.isnan(y)).any(axis=-1) | plus & minus
    invalid |= plus & np.isneginf(c) | minus & np.isposinf(c)
    return np.where(one_nan, factor_nan, np.where(invalid, invalid_nan, bits)).astype(np.uint32)
