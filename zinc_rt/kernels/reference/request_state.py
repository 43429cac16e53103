"""LOAD_REQUEST_STATE, STORE_REQUEST_STATE: rows of a slot table, gathered and scattered."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def load_request_state(math: Arithmetic, table: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """Copy rows `slot` i32 [S] of table [slots, ...] to [S, ...]."""
    return table[slot]


def store_request_state(math: Arithmetic, value: np.ndarray, slot: np.ndarray, table: np.ndarray) -> None:
    """Write value [S, ...] to rows `slot` of table, in place."""
    table[slot] = value
