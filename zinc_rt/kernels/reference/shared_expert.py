"""SHARED_EXPERT: the always-active expert, optionally behind its own sigmoid gate."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def shared_expert(
    math: Arithmetic,
    x: np.ndarray,
    gate_w: Weight,
    up_w: Weight,
    down_w: Weight,
    gate_inp: Weight | None,
    hidden: np.ndarray | None,
) -> np.ndarray:
    """x [T, D] -> hidden + sigmoid(gate_inp . x) * down(silu(gate x) * up x), [T, D]."""
    y = math.linear(math.silu(math.linear(x, gate_w)) * math.linear(x, up_w), down_w)
    if gate_inp is not None:
        y = y * math.sigmoid(math.dot(x, math.dequantise(gate_inp)))[:, None]
    return y if hidden is None else hidden + y
