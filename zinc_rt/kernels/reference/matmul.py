"""MATMUL: a projection, with an optional norm and gate of its input and a residual added to its output."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def matmul(
    math: Arithmetic,
    x: np.ndarray,
    w: Weight,
    bias: Weight | None,
    scale: Weight | None,
    norm_w: Weight | None = None,
    residual: np.ndarray | None = None,
    gate: np.ndarray | None = None,
    *,
    eps: float = 1e-6,
    norm_groups: int = 1,
) -> np.ndarray:
    """Compute [T, N] from x [T, K] and w (N, K): W x, times scale[0], plus bias, plus residual [T, N]. With norm_w
    (K / norm_groups,), x is replaced by its RMS_NORM over each group; with gate [T, K], it is then multiplied by
    silu(gate), so both replace SSM_GATED_NORM."""
    if norm_w is not None:
        x = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1] // norm_groups)
    if gate is not None:
        x = x * math.silu(gate)
    y = math.linear(x, w)
    if scale is not None:
        y = y * math.dequantise(scale)[0]
    if bias is not None:
        y = y + math.dequantise(bias)
    return y if residual is None else residual + y
