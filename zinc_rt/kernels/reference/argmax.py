"""ARGMAX: the greedy token, and the index of the first non-finite logit."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def argmax(math: Arithmetic, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return token i32 [L] of logits [L, V], the lower id on ties, and nonfinite i32 [L], -1 if all are finite."""
    nonfinite = ~np.isfinite(logits)
    first = np.where(nonfinite.any(axis=-1), nonfinite.argmax(axis=-1), -1)
    return logits.argmax(axis=-1).astype(np.int32), first.astype(np.int32)
