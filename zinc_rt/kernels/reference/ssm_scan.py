"""SSM_SCAN: Mamba-1's selective scan, token by token."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.step_sequences import check_ascending
from zinc_rt.kernels.weight import Weight


def ssm_scan(
    math: Arithmetic,
    u: np.ndarray,
    dt: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    a: Weight,
    d: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute y [T, I] and the new state from u, dt [T, I], b, c [T, N], a (I, N), d (I,), state [S, I, N].

    S = S exp(dt a) + (dt u) b^T; y = S c + d u, with dt through softplus first. Raise ValueError if tokens of a
    sequence are not adjacent.
    """
    check_ascending("SSM_SCAN", sequence)
    rate, skip = math.dequantise(a), math.dequantise(d)
    dt = math.softplus(dt)
    new_state = state.copy()
    y = np.empty_like(u)
    for t, item in enumerate(sequence):
        s = new_state[item] * math.exp(dt[t][:, None] * rate) + (dt[t] * u[t])[:, None] * b[t]
        y[t] = math.dot(s, c[t]) + skip * u[t]
        new_state[item] = s
    return y, new_state
