"""RESIDUAL_RMS_NORM: add the residual, then normalise the sum."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def residual_rms_norm(
    math: Arithmetic, x: np.ndarray, residual: np.ndarray, norm_w: Weight, *, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute hidden = x + residual and y = rms_norm(hidden) for x, residual [T, D]."""
    hidden = x + residual
    return hidden, rms_norm(math, hidden, norm_w, eps=eps, size=x.shape[-1])
