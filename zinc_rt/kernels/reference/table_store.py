"""TABLE_STORE: write the page-table entries that change in this step."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def table_store(math: Arithmetic, entry: np.ndarray, value: np.ndarray, table: np.ndarray) -> None:
    """Write value i32 [E] to the elements entry i32 [E] of table i32 [slots, pages], counted row-major, in place.

    Raise IndexError for an entry outside the table, ValueError for one that occurs twice.
    """
    outside = entry[(entry < 0) | (entry >= table.size)]
    if outside.size:
        raise IndexError(f"TABLE_STORE: entry {outside[0]} is outside a table of {table.size}")
    if np.unique(entry).size < entry.size:
        raise ValueError("TABLE_STORE: an entry is stored twice in one step")
    table.reshape(-1)[entry] = value
