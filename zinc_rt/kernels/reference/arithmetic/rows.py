"""Split a weight's rows into blocks, on one or more threads. Results do not depend on the split."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BLOCK_ELEMENTS = 1 << 20  # 4 MiB of float32; smaller blocks leave threads waiting for the interpreter lock
BLOCK_ROWS = 1024  # 512 KiB of accumulators for the current token


class RowBlocks:
    """A divider of rows that calls work(first, last) for blocks of rows; with several threads, blocks run in
    parallel."""

    def __init__(self, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, "zinc-rt-rows") if threads > 1 else None

    def each_block(self, rows: int, row_elements: int, work: Callable[[int, int], None]) -> None:
        step = max(1, min(BLOCK_ROWS, BLOCK_ELEMENTS // max(row_elements, 1)))
        blocks = [(first, min(first + step, rows)) for first in range(0, rows, step)]
        if self._pool is None:
            for first, last in blocks:
                work(first, last)
        else:
            list(self._pool.map(lambda block: work(*block), blocks))  # list: an error in a block raises here


def tokens_of(x: np.ndarray, k: int) -> np.ndarray:
    """Return x[..., K] as contiguous float32 [T, K]."""
    if x.shape[-1] != k:
        raise ValueError(f"the weight expects rows of {k} elements, not {x.shape[-1]}")
    return np.ascontiguousarray(x, np.float32).reshape(int(np.prod(x.shape[:-1])), k)
