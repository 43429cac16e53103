"""wmma-f16: projections with the sums of gfx12's V_WMMA_F32_16X16X16_F16, as defined in docs/wmma-f16.md.

Products and sums are integers in units of a power of two, as the instruction aligns them: each step of four
products is rounded to float32 once.
"""

from __future__ import annotations

import numpy as np

TILE = 16  # elements of k of one instruction
STEPS = (0, 8, 4, 12)  # the first of each step's four elements
LARGEST = 14  # a row is scaled so that its largest element has this exponent
_FIELDS = 27, 254  # exponent fields of a row's largest element that have their own scale
_NO_PRODUCT = -1 << 12  # exponent of a zero: below every grid
_PRODUCT_GUARD, _SUM_GUARD, _SMALLEST = 24, 26, -126
_BLOCK = 1 << 16  # results computed at a time


@np.errstate(all="ignore")
def round_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round x[T, K], float32, to (float16 [T, K], factors float32 [T]); x is about their product. Each row is
    first scaled by a power of two, so that its largest element has the exponent 14. Infinity and NaN stay."""
    bits = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    field = np.clip(bits.max(axis=1, initial=0) >> np.uint32(23), *_FIELDS).astype(np.uint32)
    scale = (np.uint32(254 + LARGEST) - field) << np.uint32(23)
    factor = (field - np.uint32(LARGEST)) << np.uint32(23)
    return (x * scale.view(np.float32)[:, None]).astype(np.float16), factor.view(np.float32)


def round_weight(w: np.ndarray) -> np.ndarray:
    """Round dequantised weights to float16, to nearest even. Values of 65,520 and more become infinite."""
    with np.errstate(over="ignore"):
        return w.astype(np.float16)


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply float16 a[T, K] by b[N, K] -> float32 [T, N], starting from +0. A K that is not a multiple of 16 is
    padded with zeros, which changes no bit."""
    out = np.empty((len(a), len(b)), np.float32)
    step = max(1, _BLOCK // max(len(a), 1))
    left = _decode(a)
    for first in range(0, len(b), step):
        out[:, first : first + step] = _finite_products(left, _decode(b[first : first + step]))
    _put_specials(a, b, out)
    return out


def _decode(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return signed significands and exponents, int64 [rows, padded K]. Infinity and NaN have arbitrary ones."""
    bits = np.pad(np.ascontiguousarray(halves), ((0, 0), (0, -halves.shape[1] % TILE))).view(np.uint16)
    bits = bits.astype(np.int64)
    field, fraction = bits >> 10 & 31, bits & 1023
    size = np.where(field > 0, fraction | 1024, fraction)
    exponent = np.where(size == 0, _NO_PRODUCT, np.maximum(field, 1) - 15)
    return np.where(bits >> 15, -size, size), exponent


def _finite_products(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> np.ndarray:
    total = np.zeros((len(left[0]), len(right[0])))
    for tile in range(0, left[0].shape[1], TILE):
        for start in STEPS:
            part = slice(tile + start, tile + start + 4)
            a, b = ([values[:, part] for values in side] for side in (left, right))
            product = a[0][:, None] * b[0] << 4  # in units of 2 ** its grid
            grid = a[1][:, None] + b[1] - _PRODUCT_GUARD
            total = _step(product, grid, total)
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


def _put_specials(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Set results with a factor that is NaN or infinite, as IEEE's sums of such products are."""
    rows, columns = (np.flatnonzero(~np.isfinite(side).all(axis=1)) for side in (a, b))
    with np.errstate(invalid="ignore"):
        for row in rows:
            out[row] = (a[row].astype(np.float64) * b).sum(axis=1)
        for column in columns:
            out[:, column] = (a.astype(np.float64) * b[column]).sum(axis=1)
