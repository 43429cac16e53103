"""canonical-1-q8: activations in 8 bits, exact integer dots per block, float32 only between blocks.

For weights in the five formats of blocks.py; every other type is computed as canonical-1 does.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic.blocks import UNPACK, Blocks, unpack
from zinc_rt.kernels.reference.arithmetic.canonical import Canonical1
from zinc_rt.kernels.reference.arithmetic.dot import LANES, tree
from zinc_rt.kernels.reference.arithmetic.rows import tokens_of
from zinc_rt.kernels.weight import Weight

MAX_QUANT = np.float32(127)
SMALLEST_AMAX = np.float32(2**-100)  # below it a block is zero, which keeps 127 / amax far from overflow
TOKENS = 8  # processed at once: bounds memory, and keeps products of 32-blocks too small for threads in BLAS


class Canonical1Q8(Canonical1):
    name = "canonical-1-q8"

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        if weight.dtype not in UNPACK:
            return super().linear(x, weight)
        rows, k = weight.shape
        tokens = tokens_of(x, k)
        out = np.empty((len(tokens), rows), np.float32)

        def work(first: int, last: int) -> None:
            blocks = unpack(weight.dtype, weight.raw[first:last])
            integers = scaled_integers(blocks)
            for t in range(0, len(tokens), TOKENS):
                out[t : t + TOKENS, first:last] = block_dots(tokens[t : t + TOKENS], blocks, integers)

        self._rows.each_block(rows, k, work)
        return out.reshape(*x.shape[:-1], rows)


@np.errstate(all="ignore")
def quantise(x: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantise x[T, K] to (q int8 [T, B, block] in -127..127, d float32 [T, B]); x is about q * d.

    block 32: d is rounded to float16 as in ggml's block_q8_0, after q was computed; block 256: d stays float32
    (block_q8_K). A block holding NaN or infinity gets d = NaN, so it cannot go unnoticed.
    """
    x = x.reshape(len(x), -1, block)
    amax = np.abs(x).max(axis=-1)
    zero = amax < SMALLEST_AMAX
    finite = np.isfinite(amax)
    factor = np.where(finite & ~zero, MAX_QUANT / amax, np.float32(0))
    q = np.rint(np.where(finite[..., None], x, np.float32(0)) * factor[..., None]).astype(np.int8)
    d = np.where(zero, np.float32(0), amax / MAX_QUANT)
    if block == 32:
        d = d.astype(np.float16).astype(np.float32)
    return q, np.where(finite, d, np.float32(np.nan))


def scaled_integers(weight: Blocks) -> np.ndarray:
    """Return scale * q of every weight, exact, in float64 [R, B, elements per block]."""
    integers = weight.q.astype(np.float64)
    if weight.scale is not None:
        integers *= weight.scale[..., None]
    return integers.reshape(*integers.shape[:2], -1)


@np.errstate(all="ignore")
def block_dots(x: np.ndarray, weight: Blocks, integers: np.ndarray) -> np.ndarray:
    """Multiply x[T, K] by the rows of `weight` (R, K) -> [T, R]. `integers` is its scaled_integers."""
    _, blocks, subs, elements = weight.q.shape
    q, dx = quantise(x, subs * elements)
    sums = _integer_dots(q, integers)
    result = _over_blocks(sums, weight.d, dx)
    if weight.dmin is not None and weight.minimum is not None:
        sub_sums = q.reshape(len(q), blocks, subs, elements).sum(axis=-1, dtype=np.int32)
        sums = _integer_dots(sub_sums, weight.minimum.astype(np.float64))
        result = result - _over_blocks(sums, weight.dmin, dx)
    return result


def _integer_dots(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Multiply integers x[T, B, e] and w[R, B, e] in float64 -> float32 [B, T, R], each rounded once.

    Every partial sum is an integer far below 2^53, so BLAS is exact in whatever order it adds.
    """
    return (x.astype(np.float64).swapaxes(0, 1) @ w.transpose(1, 2, 0)).astype(np.float32)


def _over_blocks(sums: np.ndarray, dw: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """Accumulate acc[b % 32] += sums[b] * (dw[b] * dx[b]) in increasing b, then reduce over lanes by the butterfly
    -> [T, R]."""
    total = np.zeros((LANES, *sums.shape[1:]), np.float32)
    for b, block_sums in enumerate(sums):
        total[b % LANES] += block_sums * (dx[:, b, None] * dw[None, :, b])
    return tree(np.moveaxis(total, 0, -1))
