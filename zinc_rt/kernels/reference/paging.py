"""Map (slot, position) to the row of a paged cache."""

from __future__ import annotations

import numpy as np


def cache_rows(
    page_table: np.ndarray, slot: np.ndarray | int, position: np.ndarray, page_tokens: int
) -> np.ndarray:
    """Return row indices of the cache for page_table i32 [slots, pages]; slot and position broadcast."""
    return page_table[slot, position // page_tokens] * page_tokens + position % page_tokens
