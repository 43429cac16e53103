"""KV_WRITE_BATCHED: store each token's key and value in its row of the paged cache."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.paging import cache_rows, write_cache


def kv_write_batched(
    math: Arithmetic,
    k: np.ndarray,
    v: np.ndarray,
    position: np.ndarray,
    slot: np.ndarray,
    page_table: np.ndarray,
    kv_k: np.ndarray,
    kv_v: np.ndarray,
    *,
    page_tokens: int = 16,
) -> None:
    """Write k [T, K] and v [T, V] to rows of kv_k [rows, K] and kv_v [rows, V], in place, as write_cache."""
    rows = cache_rows(page_table, slot, position, page_tokens)
    write_cache(kv_k, rows, k)
    write_cache(kv_v, rows, v)
