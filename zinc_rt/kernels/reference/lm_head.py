"""LM_HEAD: vocabulary logits of the requested rows."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.matmul import matmul
from zinc_rt.kernels.weight import Weight


def lm_head(math: Arithmetic, x: np.ndarray, output_w: Weight, row: np.ndarray, bias: Weight | None) -> np.ndarray:
    """Compute logits [L, V] of x[row] for x [T, D], output_w (V, D), row i32 [L]."""
    return matmul(math, x[row], output_w, bias, None)
