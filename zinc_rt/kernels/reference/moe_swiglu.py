"""MOE_SWIGLU: the experts' gated activation."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic

LIMIT, ALPHA = np.float32(7), np.float32(1.702)  # of gpt-oss: ggml_swiglu_oai in llama.cpp


def moe_swiglu(math: Arithmetic, gate: np.ndarray, up: np.ndarray, *, activation: str = "silu") -> np.ndarray:
    """Compute activation(gate) * up for gate, up [T, k, F]; clamped: (gate sigmoid(ALPHA gate)) * (up + 1) of
    gate at most LIMIT and up within -LIMIT and LIMIT."""
    if activation == "clamped":
        gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
        return gate * math.sigmoid(gate * ALPHA) * (up + np.float32(1))
    return (math.silu(gate) if activation == "silu" else math.gelu(gate)) * up
