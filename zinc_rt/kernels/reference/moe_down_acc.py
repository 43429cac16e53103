"""MOE_DOWN_ACC: down projections of the selected experts, weighted and summed."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def moe_down_acc(
    math: Arithmetic,
    x: np.ndarray,
    down_w: Weight,
    ids: np.ndarray,
    weights: np.ndarray,
    expert_scale: Weight | None,
    hidden: np.ndarray | None,
    residual: np.ndarray | None = None,
    bias: Weight | None = None,
) -> np.ndarray:
    """Compute [T, D] from x [T, k, F], down_w (E, D, F), ids and weights [T, k].

    The sum runs from +0 in selection order over weight * (down x, times expert_scale[e] and plus bias (E, D) of
    e if given); then hidden + sum, and that + residual.
    """
    down = np.empty((*ids.shape, down_w.shape[1]), np.float32)
    for expert in np.unique(ids):
        token, choice = np.nonzero(ids == expert)
        down[token, choice] = math.linear(x[token, choice], down_w[int(expert)])
    if expert_scale is not None:
        down = down * math.dequantise(expert_scale)[ids][..., None]
    if bias is not None:
        down = down + math.dequantise(bias)[ids]
    total = np.zeros((len(x), down_w.shape[1]), np.float32)
    for rank in range(ids.shape[1]):
        total = total + down[:, rank] * weights[:, rank, None]
    total = total if hidden is None else hidden + total
    return total if residual is None else total + residual
