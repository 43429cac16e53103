"""MATMUL_FUSED_CONV1D_IDS: a projection, then the convolution over time of its result."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.matmul import matmul
from zinc_rt.kernels.reference.ssm_conv1d import ssm_conv1d_update_ids
from zinc_rt.kernels.weight import Weight


def matmul_fused_conv1d_ids(
    math: Arithmetic,
    x: np.ndarray,
    w: Weight,
    conv_w: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    bias: Weight | None,
    norm_w: Weight | None = None,
    *,
    silu: bool = True,
    disjoint: bool = False,
    eps: float = 1e-6,
) -> np.ndarray:
    """Compute SSM_CONV1D_UPDATE_IDS of MATMUL of x [T, D] by w (C, D) -> [T, C]; norm_w (D,) as in MATMUL."""
    mixed = matmul(math, x, w, None, None, norm_w, eps=eps)
    return ssm_conv1d_update_ids(
        math, mixed, conv_w, state, sequence, source, target, bias, silu=silu, disjoint=disjoint
    )
