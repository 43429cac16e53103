"""SHARED_EXPERT: the always-active expert, optionally scaled by its sigmoid gate."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.matmul import matmul
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def shared_expert(
    math: Arithmetic,
    x: np.ndarray,
    gate_w: Weight,
    up_w: Weight,
    down_w: Weight,
    gate_inp: Weight | None,
    hidden: np.ndarray | None,
    gate_scale: Weight | None = None,
    up_scale: Weight | None = None,
    down_scale: Weight | None = None,
    norm_w: Weight | None = None,
    *,
    eps: float = 1e-6,
) -> np.ndarray:
    """Compute hidden + sigmoid(gate_inp . x) * down(silu(gate x) * up x), [T, D], for x [T, D].

    The scales (1,), if given, multiply the result of their projection. With norm_w (D,), x is replaced by its
    RMS_NORM.
    """
    if norm_w is not None:
        x = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1])
    gate, up = matmul(math, x, gate_w, None, gate_scale), matmul(math, x, up_w, None, up_scale)
    y = matmul(math, math.silu(gate) * up, down_w, None, down_scale)
    if gate_inp is not None:
        y = y * math.sigmoid(math.dot(x, math.dequantise(gate_inp)))[:, None]
    return y if hidden is None else hidden + y
