"""SCALE and ROW_SCALE: by a constant or stored scalar, or by a table over positions."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def scale(math: Arithmetic, x: np.ndarray, weight: Weight | None, *, factor: float = 1.0) -> np.ndarray:
    """Compute (x * factor) * weight[0] for x [T, N]."""
    y = x * np.float32(factor)
    return y if weight is None else y * math.dequantise(weight)[0]


def row_scale(math: Arithmetic, x: np.ndarray, position: np.ndarray, table: Weight) -> np.ndarray:
    """Compute x[t] * table[position[t]] for x [T, N], position i32 [T], table (ctx,)."""
    return x * math.dequantise(table)[position][:, None]
