"""MOE_GATE_UP: gate and up projections of the experts selected for each token."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.moe_swiglu import moe_swiglu
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def moe_gate_up(
    math: Arithmetic,
    x: np.ndarray,
    gate_w: Weight,
    up_w: Weight,
    ids: np.ndarray,
    gate_scale: Weight | None = None,
    up_scale: Weight | None = None,
    norm_w: Weight | None = None,
    gate_bias: Weight | None = None,
    up_bias: Weight | None = None,
    *,
    activation: str = "none",
    eps: float = 1e-6,
) -> tuple[np.ndarray, ...]:
    """Project x [T, D] with gate_w and up_w (E, F, D), ids i32 [T, k] -> gate [T, k, F], up [T, k, F].

    gate_scale and up_scale (E,), if given, multiply the result of their projection; then gate_bias and
    up_bias (E, F) of the expert are added. With an activation, return MOE_SWIGLU of both, [T, k, F]. With norm_w
    (D,), x is replaced by its RMS_NORM.
    """
    if norm_w is not None:
        x = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1])
    gate = np.empty((*ids.shape, gate_w.shape[1]), np.float32)
    up = np.empty_like(gate)
    for expert in np.unique(ids):
        token, choice = np.nonzero(ids == expert)
        gate[token, choice] = math.linear(x[token], gate_w[int(expert)])
        up[token, choice] = math.linear(x[token], up_w[int(expert)])
    if gate_scale is not None:
        gate = gate * math.dequantise(gate_scale)[ids][..., None]
    if up_scale is not None:
        up = up * math.dequantise(up_scale)[ids][..., None]
    if gate_bias is not None:
        gate = gate + math.dequantise(gate_bias)[ids]
    if up_bias is not None:
        up = up + math.dequantise(up_bias)[ids]
    return (gate, up) if activation == "none" else (moe_swiglu(math, gate, up, activation=activation),)
