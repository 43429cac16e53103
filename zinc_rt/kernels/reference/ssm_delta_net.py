"""SSM_DELTA_NET: the gated delta rule, token by token; plain, in-place and ids-gathered forms."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.step_sequences import check_ascending, check_disjoint
from zinc_rt.kernels.weight import Weight


def ssm_delta_net(
    math: Arithmetic,
    conv_out: np.ndarray,
    beta: np.ndarray,
    alpha: np.ndarray,
    dt_bias: Weight,
    a: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    *,
    k_heads: int,
    v_heads: int,
    head_dim: int,
    eps: float,
    grouping: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute y [T, v_heads * d] and the new state from conv_out [T, q heads | k heads | v heads], beta and alpha
    [T, v_heads], state [S, v_heads, d, d] as [value dim][key dim].

    Per token and v head, with q and k scaled to unit length:
    S = S e^g;  delta = sigmoid(beta) (v - S k);  S = S + delta k^T;  y = (S q) / sqrt(d),
    where g = a softplus(alpha + dt_bias). Raise ValueError if tokens of a sequence are not adjacent.
    """
    check_ascending("SSM_DELTA_NET", sequence)
    tokens, d = len(conv_out), head_dim
    q, k, v = np.split(conv_out, [k_heads * d, 2 * k_heads * d], axis=-1)
    reads = np.arange(v_heads)
    reads = reads % k_heads if grouping == "tiled" else reads // (v_heads // k_heads)
    q = _unit(math, q.reshape(tokens, k_heads, d), eps)[:, reads]
    k = _unit(math, k.reshape(tokens, k_heads, d), eps)[:, reads]
    v = v.reshape(tokens, v_heads, d)
    rate = math.sigmoid(beta)
    decay = math.exp(math.dequantise(a) * math.softplus(alpha + math.dequantise(dt_bias)))
    shrink = np.float32(1.0 / np.sqrt(np.float64(d)))

    new_state = state.copy()
    y = np.empty((tokens, v_heads, d), np.float32)
    for t, item in enumerate(sequence):
        s = new_state[item] * decay[t][:, None, None]
        delta = rate[t][:, None] * (v[t] - math.dot(s, k[t][:, None, :]))
        s = s + k[t][:, None, :] * delta[:, :, None]
        y[t] = math.dot(s, q[t][:, None, :]) * shrink
        new_state[item] = s
    return y.reshape(tokens, -1), new_state


def _unit(math: Arithmetic, x: np.ndarray, eps: float) -> np.ndarray:
    return x * math.rsqrt(math.dot(x, x) + np.float32(eps))[..., None]


def ssm_delta_net_inplace(
    math: Arithmetic,
    conv_out: np.ndarray,
    beta: np.ndarray,
    alpha: np.ndarray,
    dt_bias: Weight,
    a: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    *,
    k_heads: int,
    v_heads: int,
    head_dim: int,
    eps: float,
    grouping: str,
) -> np.ndarray:
    """Compute as ssm_delta_net does. Row s of the cache `state` [slots, v_heads, d, d] is updated for sequence
    s.
    """
    y, state[...] = ssm_delta_net(
        math,
        conv_out,
        beta,
        alpha,
        dt_bias,
        a,
        state,
        sequence,
        k_heads=k_heads,
        v_heads=v_heads,
        head_dim=head_dim,
        eps=eps,
        grouping=grouping,
    )
    return y


def ssm_delta_net_inplace_ids(
    math: Arithmetic,
    conv_out: np.ndarray,
    beta: np.ndarray,
    alpha: np.ndarray,
    dt_bias: Weight,
    a: Weight,
    state: np.ndarray,
    sequence: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    *,
    k_heads: int,
    v_heads: int,
    head_dim: int,
    eps: float,
    grouping: str,
    disjoint: bool = False,
) -> np.ndarray:
    """Compute as ssm_delta_net does. Sequence s reads row source[s] of the cache and writes row target[s].

    Every row is read before any is written; `disjoint` asserts that the order makes no difference. Raise
    ValueError if it does.
    """
    if disjoint:
        check_disjoint("SSM_DELTA_NET_INPLACE_IDS", source, target)
    y, new_state = ssm_delta_net(
        math,
        conv_out,
        beta,
        alpha,
        dt_bias,
        a,
        state[source],
        sequence,
        k_heads=k_heads,
        v_heads=v_heads,
        head_dim=head_dim,
        eps=eps,
        grouping=grouping,
    )
    state[target] = new_state
    return y
