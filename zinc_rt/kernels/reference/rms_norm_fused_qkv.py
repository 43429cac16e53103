"""RMS_NORM_FUSED_QKV: the norm and the three projections of its result, as one node."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.matmul import matmul
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def rms_norm_fused_qkv(
    math: Arithmetic,
    x: np.ndarray,
    norm_w: Weight,
    q_w: Weight,
    k_w: Weight,
    v_w: Weight,
    q_bias: Weight | None,
    k_bias: Weight | None,
    v_bias: Weight | None,
    *,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute q [T, Q], k [T, K], v [T, V] from x [T, D], bit for bit as RMS_NORM and three MATMUL."""
    h = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1])
    q, k, v = (matmul(math, h, w, bias, None) for w, bias in ((q_w, q_bias), (k_w, k_bias), (v_w, v_bias)))
    return q, k, v
