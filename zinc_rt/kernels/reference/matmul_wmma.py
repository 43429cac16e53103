"""MATMUL_WMMA_F16, MATMUL_WMMA_Q4K: matrix-core products; on this tier a plain GEMM."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def matmul_wmma(math: Arithmetic, a: np.ndarray, b: Weight) -> np.ndarray:
    """Multiply a [T, K] by b (N, K) -> [T, N] in the selected ordering, not in that of the matrix cores."""
    return math.linear(a, b)
