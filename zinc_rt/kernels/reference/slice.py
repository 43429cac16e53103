"""SLICE: a range of columns from every group of columns."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def slice_columns(math: Arithmetic, x: np.ndarray, *, group: int, offset: int, size: int) -> np.ndarray:
    """Return [T, N / group * size] of x [T, N]: columns [offset, offset + size) of every `group` adjacent
    columns.
    """
    return x.reshape(len(x), -1, group)[..., offset : offset + size].reshape(len(x), -1)
