"""Digests of a golden's arrays: what two of them, or one and a fresh computation, have in common to the bit, where
the values themselves would be too much to keep."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from zinc_rt.golden.capture import CapturedRun

DIGITS = 32  # of SHA-256: 128 bits


def array_digest(array: np.ndarray) -> str:
    """Of an array's shape and values as little-endian float32; whole numbers up to 2^24 are exact in it."""
    shape = ",".join(map(str, array.shape))
    return hashlib.sha256(f"{shape};".encode() + np.ascontiguousarray(array, "<f4").tobytes()).hexdigest()[:DIGITS]


def array_digests(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: array_digest(array) for name, array in arrays.items()}


def run_digests(run: CapturedRun, prompt_tokens: int) -> dict[str, str]:
    """Of every value of a run's prompt in the graph's order, then of its logits."""
    logits = {"logits": run.logits[:prompt_tokens], "greedy_logits": run.logits[prompt_tokens:]}
    return array_digests({**run.values, **logits})
