"""RMS_NORM_FUSED_MLP_GATE_UP: the norm and the two projections of a gated feed-forward, and their product."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.moe_swiglu import moe_swiglu
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def rms_norm_fused_mlp_gate_up(
    math: Arithmetic,
    x: np.ndarray,
    norm_w: Weight,
    gate_w: Weight,
    up_w: Weight,
    *,
    eps: float,
    activation: str = "none",
) -> tuple[np.ndarray, ...]:
    """Compute gate [T, F], up [T, F] from x [T, D], bit for bit as RMS_NORM and two MATMUL. With an activation,
    return SWIGLU or GEGLU of them, [T, F]."""
    h = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1])
    gate, up = math.linear(h, gate_w), math.linear(h, up_w)
    return (gate, up) if activation == "none" else (moe_swiglu(math, gate, up, activation=activation),)
