"""SSM_CONV1D: causal depthwise convolution over time; plain, in-place and ids-gathered forms."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.step_sequences import check_ascending, check_disjoint
from zinc_rt.kernels.weight import Weight


def ssm_conv1d(
    math: Arithmetic,
    x: np.ndarray,
    weight: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    bias: Weight | None,
    *,
    silu: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute y [T, C] and the new state from x [T, C], weight (C, K), state [S, K-1, C] (the last K-1 inputs),
    sequence i32 [T].

    Taps are summed from +0, the oldest first; the last tap applies to the token itself. Raise ValueError if tokens
    of a sequence are not adjacent.
    """
    check_ascending("SSM_CONV1D", sequence)
    taps = math.dequantise(weight).T
    new_state = state.copy()
    y = np.empty_like(x)
    for item in np.unique(sequence):
        tokens = np.flatnonzero(sequence == item)
        line = np.concatenate([state[item], x[tokens]])
        total = np.zeros((len(tokens), x.shape[1]), np.float32)
        for j, tap in enumerate(taps):
            total = total + line[j : j + len(tokens)] * tap
        y[tokens] = total
        new_state[item] = line[len(tokens) :]
    if bias is not None:
        y = y + math.dequantise(bias)
    return (math.silu(y) if silu else y), new_state


def ssm_conv1d_update(
    math: Arithmetic,
    x: np.ndarray,
    weight: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    bias: Weight | None,
    *,
    silu: bool = True,
) -> np.ndarray:
    """Compute as ssm_conv1d does. Row s of the cache `state` [slots, K-1, C] is read and rewritten for
    sequence s.
    """
    y, state[...] = ssm_conv1d(math, x, weight, state, sequence, bias, silu=silu)
    return y


def ssm_conv1d_update_ids(
    math: Arithmetic,
    x: np.ndarray,
    weight: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    bias: Weight | None,
    *,
    silu: bool = True,
    disjoint: bool = False,
) -> np.ndarray:
    """Compute as ssm_conv1d does. Sequence s reads row source[s] of the cache and writes row target[s].

    Every row is read before any is written; `disjoint` asserts that the order makes no difference. Raise
    ValueError if it does.
    """
    if disjoint:
        check_disjoint("SSM_CONV1D_UPDATE_IDS", source, target)
    y, new_state = ssm_conv1d(math, x, weight, state[source], sequence, bias, silu=silu)
    state[target] = new_state
    return y
