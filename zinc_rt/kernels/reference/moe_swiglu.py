"""MOE_SWIGLU: the experts' gated activation."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def moe_swiglu(math: Arithmetic, gate: np.ndarray, up: np.ndarray, *, activation: str = "silu") -> np.ndarray:
    """Compute activation(gate) * up for gate, up [T, k, F]."""
    return (math.silu(gate) if activation == "silu" else math.gelu(gate)) * up
