"""SSM_GATED_NORM: per-head RMS norm, then the gate."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight


def ssm_gated_norm(math: Arithmetic, x: np.ndarray, z: np.ndarray, norm_w: Weight, *, eps: float) -> np.ndarray:
    """Compute rms_norm(x) * silu(z) for x, z [T, heads * d], norm_w (d,)."""
    return rms_norm(math, x, norm_w, eps=eps, size=norm_w.shape[0]) * math.silu(z)
