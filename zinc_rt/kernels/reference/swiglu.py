"""SWIGLU: silu(gate) * up."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def swiglu(math: Arithmetic, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Compute silu(gate) * up for gate and up of the same shape."""
    return math.silu(gate) * up
