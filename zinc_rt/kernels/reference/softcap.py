"""SOFTCAP: bound values smoothly."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def softcap(math: Arithmetic, x: np.ndarray, *, cap: float) -> np.ndarray:
    """Compute tanh(x / cap) * cap for x [T, N]."""
    return math.tanh(x / np.float32(cap)) * np.float32(cap)
