"""canonical-1's dot product: 128 accumulators, products added in increasing k, then a tree of neighbours.

Element k belongs to lane (k // 4) % 32 and sub-accumulator k % 4, that is to accumulator k % 128. Adding
(a0 + a1) + (a2 + a3) and then across lanes by xor 1, 2, 4, 8, 16 pairs each accumulator with its neighbour at
every step, because IEEE addition commutes: seven halvings of an array of 128.
"""

from __future__ import annotations

import numpy as np

LANES = 32
ACCUMULATORS = 128  # 32 lanes of 4 sub-accumulators


@np.errstate(all="ignore")
def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute float32 dot products over the last axis of both; the other axes broadcast. Needs 1 KiB of scratch
    per result.

    A short last group is not padded: accumulators start at +0, so none is ever -0 and adding a padded +0 * +0
    would change nothing.
    """
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"cannot compute a dot product of {a.shape[-1]} and {b.shape[-1]} elements")
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    total = np.zeros((*shape, ACCUMULATORS), np.float32)
    product = np.empty((*shape, ACCUMULATORS), np.float32)
    for first in range(0, a.shape[-1], ACCUMULATORS):
        part = slice(first, min(first + ACCUMULATORS, a.shape[-1]))
        used = slice(0, part.stop - first)
        np.multiply(a[..., part], b[..., part], out=product[..., used])
        np.add(total[..., used], product[..., used], out=total[..., used])
    return tree(total)


@np.errstate(all="ignore")
def tree(values: np.ndarray) -> np.ndarray:
    """Sum over the last axis, whose length is a power of two: adjacent elements first, then adjacent sums."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]
