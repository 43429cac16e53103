"""SIGMOID_MUL: x * sigmoid(gate)."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def sigmoid_mul(math: Arithmetic, x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """Compute x * sigmoid(gate) for x, gate [T, N]."""
    return x * math.sigmoid(gate)
