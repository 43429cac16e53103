"""GEGLU: gelu(gate) * up, with the tanh form of GELU."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def geglu(math: Arithmetic, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Compute gelu(gate) * up for gate and up of the same shape."""
    return math.gelu(gate) * up
