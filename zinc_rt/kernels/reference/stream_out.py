"""STREAM_OUT: append tokens to the host's result ring."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic


def stream_out(
    math: Arithmetic, token: np.ndarray, out_slot: np.ndarray, ring: np.ndarray, cursor: np.ndarray
) -> None:
    """Append (slot, token) for each row to ring i32 [capacity, 2], in place; cursor i32 [1] counts all entries."""
    for entry in zip(out_slot, token, strict=True):
        ring[cursor[0] % len(ring)] = entry
        cursor[0] += 1
