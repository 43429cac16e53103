"""VERIFY_K: count the tokens of a speculative draft that the target model accepts."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def verify_k(math: Arithmetic, draft: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return accept_len i32 [S], the length of the agreeing prefix, and next_token i32 [S], the target's choice
    after it, from draft i32 [S, K] and target i32 [S, K+1] (the target's own choice after each draft prefix)."""
    agrees = np.logical_and.accumulate(draft == target[:, :-1], axis=1)
    accept_len = agrees.sum(axis=1).astype(np.int32)
    return accept_len, target[np.arange(len(target)), accept_len].astype(np.int32)
