"""GELU: the tanh form, without a gate."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def gelu(math: Arithmetic, x: np.ndarray) -> np.ndarray:
    """Compute gelu(x) for x [T, N]."""
    return math.gelu(x)
