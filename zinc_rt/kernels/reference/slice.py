"""SLICE: a run of columns."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def slice_columns(math: Arithmetic, x: np.ndarray, *, offset: int, size: int) -> np.ndarray:
    """x [T, N] -> x[:, offset : offset + size]."""
    return x[:, offset : offset + size]
