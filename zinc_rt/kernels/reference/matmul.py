"""MATMUL: a plain projection."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def matmul(math: Arithmetic, x: np.ndarray, w: Weight, bias: Weight | None, scale: Weight | None) -> np.ndarray:
    """x [T, K], w (N, K) -> [T, N]: W x, times scale[0], plus bias."""
    y = math.linear(x, w)
    if scale is not None:
        y = y * math.dequantise(scale)[0]
    if bias is not None:
        y = y + math.dequantise(bias)
    return y
