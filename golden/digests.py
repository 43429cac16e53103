"""Digests of a golden's arrays. They allow bit-exact comparison of two goldens, or of a golden and a new
computation, when the values themselves would be too large to store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from zinc_rt.golden.capture import CapturedRun

DIGITS = 32  # of SHA-256: 128 bits


def digest_array(array: np.ndarray) -> str:
    """Return the digest of an array's shape and values as little-endian float32; integers up to 2^24 are
    exact in it."""
    shape = ",".join(map(str, array.shape))
    return hashlib.sha256(f"{shape};".encode() + np.ascontiguousarray(array, "<f4").tobytes()).hexdigest()[:DIGITS]


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: digest_array(array) for name, array in arrays.items()}


def digest_run(run: CapturedRun, prompt_tokens: int) -> dict[str, str]:
    """Return the digests of every value of a run's prompt in graph order, then of its logits."""
    logits = {"logits": run.logits[:prompt_tokens], "greedy_logits": run.logits[prompt_tokens:]}
    return digest_arrays({**run.values, **logits})
