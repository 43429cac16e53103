"""RMS_NORM: root-mean-square normalisation of a row, or of each head in it."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def rms_norm(
    math: Arithmetic,
    x: np.ndarray,
    weight: Weight | None,
    residual: np.ndarray | None = None,
    *,
    eps: float,
    size: int,
) -> np.ndarray:
    """Compute (x r) w with r = 1 / sqrt(mean(x^2) + eps) for x [T, K] in groups of `size` and weight (size,) or
    none, plus residual [T, K] if given."""
    groups = x.reshape(len(x), -1, size)
    mean_square = math.dot(groups, groups) / np.float32(size)
    y = groups * math.rsqrt(mean_square + np.float32(eps))[..., None]
    if weight is not None:
        y = y * math.dequantise(weight)
    y = y.reshape(x.shape)
    return y if residual is None else residual + y
