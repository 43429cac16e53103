"""LOGPROBS: the log-probability of a token, and the most likely alternatives."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def logprobs(
    math: Arithmetic, logits: np.ndarray, token: np.ndarray, *, top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute, from logits [L, V] and token i32 [L], logprob [L], NaN for a token of -1; top_id i32 [L, top], best
    first in the order of ARGMAX; top_logprob [L, top].

    logprob = (x - max) - log(dot(exp(x - max), 1)): temperature 1, independent of the sampling temperature.
    """
    ones = np.ones(logits.shape[1], np.float32)
    of_all = logits - logits.max(axis=1, keepdims=True)
    of_all = of_all - math.log(math.dot(math.exp(of_all), ones))[:, None]
    order = np.lexsort((-logits, ~np.isnan(logits)))[:, :top].astype(np.int32)  # NaN first, ties to the lower id
    logprob = np.take_along_axis(of_all, np.maximum(token, 0)[:, None], axis=1)[:, 0]
    return (
        np.where(token < 0, np.float32(np.nan), logprob),
        order,
        np.take_along_axis(of_all, order, axis=1),
    )
