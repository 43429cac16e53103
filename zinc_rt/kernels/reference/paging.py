"""Rows of a paged cache: their location by slot and position, and their element types.

The array's type is the cache's: float32; float16; or uint8, whose rows are q8_0 blocks in ggml's layout (a float16
scale, then 32 int8). A write rounds to nearest even; a read is exact, so attention computes in float32 with the
stored values.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic.blocks import unpack
from zinc_rt.kernels.reference.arithmetic.q8 import quantise


def cache_rows(
    page_table: np.ndarray, slot: np.ndarray | int, position: np.ndarray, page_tokens: int
) -> np.ndarray:
    """Return row indices of the cache for page_table i32 [slots, pages]; slot and position broadcast."""
    return page_table[slot, position // page_tokens] * page_tokens + position % page_tokens


def write_cache(cache: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Write values f32 [T, K] to `rows` of a cache, rounded to its type.

    q8_0: canonical-1-q8's quantisation of an activation, with d rounded to float16 after the integers.
    """
    if cache.dtype != np.uint8:
        cache[rows] = values
        return
    q, d = quantise(values, 32)
    scales = d.astype(np.float16)[..., None].view(np.uint8)
    cache[rows] = np.concatenate([scales, q.view(np.uint8)], axis=-1).reshape(len(values), -1)


def read_cache(cache: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Return `rows` of a cache as float32 [n, K]."""
    if cache.dtype == np.uint8:
        return unpack("q8_0", cache[rows]).dequantise()
    return cache[rows].astype(np.float32, copy=False)
