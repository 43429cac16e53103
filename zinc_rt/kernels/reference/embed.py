"""EMBED: look up rows of the token embedding table."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def embed(math: Arithmetic, token_id: np.ndarray, table: Weight) -> np.ndarray:
    """Look up token_id i32 [T] in table (V, D) -> f32 [T, D], dequantising each row."""
    return math.dequantise(table[token_id])
