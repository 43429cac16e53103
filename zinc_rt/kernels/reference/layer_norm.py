"""LAYER_NORM: normalisation of a row to mean 0 and variance 1."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def layer_norm(
    math: Arithmetic, x: np.ndarray, weight: Weight, bias: Weight | None = None, *, eps: float
) -> np.ndarray:
    """Compute ((x - mean) r) w + b with r = 1 / sqrt(variance + eps) for x [T, K], weight and bias (K,)."""
    width = np.float32(x.shape[1])
    centred = x - (math.dot(x, np.ones_like(x)) / width)[:, None]
    variance = math.dot(centred, centred) / width
    y = centred * math.rsqrt(variance + np.float32(eps))[:, None] * math.dequantise(weight)
    return y if bias is None else y + math.dequantise(bias)
