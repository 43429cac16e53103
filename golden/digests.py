"""Digests of a golden's arrays. They allow bit-exact comparison of two goldens, or of a golden and a new
computation, when the values themselves would be too large to store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from zinc_rt.golden.capture import CapturedRun

DIGITS = 32  # of SHA-256: 128 bits


def array_digest(array: np.ndarray) -> str:
    """Return the digest of an array's shape and values as little-endian float32; integers up to 2^24 are
    exact in it."""
    shape = ",".join(map(str, array.shape))
    return hashlib.sha256(f"{shape};".encode() + np.ascontiguousarray(array, "<f4").tobytes()).hexdigest()[:DIGITS]


def array_digests(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: array_digest(array) for name, array in arrays.items()}


def run_digests(run: CapturedRun, prompt_tokens: int) -> dict[str, str]:
    """Return the digests of every value of a run's prompt in graph order, then of its logits."""
    logits = {"logits": run.logits[:prompt_tokens], "greedy_logits": run.logits[prompt_tokens:]}
    return array_digests({**run.values, **logits})
