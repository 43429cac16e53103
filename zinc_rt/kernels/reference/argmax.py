"""ARGMAX: the greedy token."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def argmax(math: Arithmetic, logits: np.ndarray) -> np.ndarray:
    """logits [L, V] -> i32 [L]; ties go to the lower id."""
    return logits.argmax(axis=-1).astype(np.int32)
