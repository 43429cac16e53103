"""wmma-f16 and wmma-bf16: projections with the sums of gfx12's V_WMMA_F32_16X16X16_F16 and _BF16, as defined in
docs/wmma-f16.md.

Products and sums are integers in units of a power of two, as the instruction aligns them: each step of four
products is rounded to float32 once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TILE = 16  # elements of k of one instruction
STEPS = (0, 8, 4, 12)  # the first of each step's four elements
LARGEST = 14  # a row is scaled so that its largest element has this exponent
_FIELDS = 27, 254  # exponent fields of a row's largest element that have their own scale
_NO_PRODUCT = -1 << 12  # exponent of a zero: below every grid
_PRODUCT_GUARD, _SUM_GUARD, _SMALLEST = 24, 26, -126
_BLOCK = 1 << 16  # results computed at a time


@dataclass(frozen=True, slots=True)
class Halves:
    """A format of 16 bits: a sign, an exponent of `width` bits and a fraction."""

    fraction: int
    width: int

    @property
    def bias(self) -> int:
        return (1 << self.width - 1) - 1

    @property
    def infinity(self) -> int:
        return (1 << self.width) - 1 << self.fraction


F16, BF16 = Halves(10, 5), Halves(7, 8)
FORMATS = {"wmma-f16": F16, "wmma-bf16": BF16}


@np.errstate(all="ignore")
def round_rows(x: np.ndarray, form: Halves) -> tuple[np.ndarray, np.ndarray]:
    """Round x[T, K], float32, to (bits of halves uint16 [T, K], factors float32 [T]); x is about their product.
    Each row is first scaled by a power of two, so that its largest element has the exponent 14. Infinity and NaN
    stay."""
    bits = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    field = np.clip(bits.max(axis=1, initial=0) >> np.uint32(23), *_FIELDS).astype(np.uint32)
    scale = (np.uint32(254 + LARGEST) - field) << np.uint32(23)
    factor = (field - np.uint32(LARGEST)) << np.uint32(23)
    return round_halves(x * scale.view(np.float32)[:, None], form), factor.view(np.float32)


def round_halves(values: np.ndarray, form: Halves) -> np.ndarray:
    """Round float32 to the bits of halves, uint16, to nearest even. Large values become infinite, in f16 from
    65,520 on."""
    if form is F16:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def products(a: np.ndarray, b: np.ndarray, form: Halves) -> np.ndarray:
    """Multiply a[T, K] by b[N, K], bits of halves, -> float32 [T, N], starting from +0. A K that is not a multiple
    of 16 is padded with zeros, which changes no bit."""
    out = np.empty((len(a), len(b)), np.float32)
    step = max(1, _BLOCK // max(len(a), 1))
    left = _decode(a, form)
    for first in range(0, len(b), step):
        right = _decode(b[first : first + step], form)
        out[:, first : first + step] = _sum_products(left, right, 24 - 2 * form.fraction)
    return out


@dataclass(frozen=True, slots=True)
class _Parts:
    """Rows of halves, [rows, padded K]: signed significands and exponents, int64, and values, float64, of which
    only the sign matters if they are finite. `special`: some are infinite or NaN, with arbitrary parts."""

    significand: np.ndarray
    exponent: np.ndarray
    value: np.ndarray
    special: bool


def _decode(halves: np.ndarray, form: Halves) -> _Parts:
    bits = np.pad(halves, ((0, 0), (0, -halves.shape[1] % TILE))).astype(np.int64)
    size = bits & 0x7FFF
    field, fraction = size >> form.fraction, size & (1 << form.fraction) - 1
    significand = np.where(field > 0, fraction | 1 << form.fraction, fraction)
    exponent = np.where(significand == 0, _NO_PRODUCT, np.maximum(field, 1) - form.bias)
    significand = np.where(bits >> 15, -significand, significand)
    value = np.where(size == form.infinity, np.copysign(np.inf, significand), significand)
    value = np.where(size > form.infinity, np.nan, value)
    return _Parts(significand, exponent, value, bool((size >= form.infinity).any()))


@np.errstate(all="ignore")
def _sum_products(left: _Parts, right: _Parts, shift: int) -> np.ndarray:
    """`shift`: a product of significands in units of its grid is shifted left by so many bits."""
    total = np.zeros((len(left.exponent), len(right.exponent)))
    for tile in range(0, left.exponent.shape[1], TILE):
        for start in STEPS:
            part = slice(tile + start, tile + start + 4)
            product = left.significand[:, None, part] * right.significand[:, part] << shift
            grid = left.exponent[:, None, part] + right.exponent[:, part] - _PRODUCT_GUARD
            after = _step(product, grid, total)
            if left.special or right.special:  # IEEE's sum of what is no finite number
                values = left.value[:, None, part] * right.value[:, part]
                special = np.where(np.isfinite(values), 0, values).sum(axis=-1)
                after = np.where(special == 0, after, total + special)
            total = after
    return total.astype(np.float32)


def _step(product: np.ndarray, grid: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Add products int64 [T, N, 4] to `total` [T, N]: float64 arrays of float32 values."""
    pair_grid = np.maximum(grid[..., 0::2], grid[..., 1::2])
    by = np.minimum(pair_grid[..., None] - grid.reshape(*pair_grid.shape, 2), 63)
    pair = (product.reshape(*pair_grid.shape, 2) >> by).sum(axis=-1)
    _, exponent = np.frexp(total)
    leading = np.where(total == 0, _SMALLEST, np.maximum(exponent - 1, _SMALLEST))
    unit = np.maximum(pair_grid.max(axis=-1), leading - _SUM_GUARD)
    units = np.floor(np.ldexp(total, -unit))
    units[(units == -1) & (np.ldexp(total, -unit) > -1) & (unit > _SMALLEST)] = 0  # nothing is left of it
    units += (pair >> np.minimum(unit[..., None] - pair_grid, 63)).sum(axis=-1)
    return np.ldexp(units, unit).astype(np.float32).astype(np.float64) + 0.0
