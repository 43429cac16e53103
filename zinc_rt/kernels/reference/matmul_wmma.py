"""MATMUL_WMMA_F16, MATMUL_WMMA_Q4K: projections in wmma-f16, on every tier."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def matmul_wmma(math: Arithmetic, a: np.ndarray, b: Weight) -> np.ndarray:
    """Multiply a [T, K] by b (N, K) -> [T, N] with the sums of gfx12's matrix cores (docs/wmma-f16.md)."""
    return math.linear_wmma(a, b)
