"""RMS_NORM_FUSED_ROPE_KV_WRITE: per-head norms, rotation and the cache write, as one node."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.kv_write_batched import kv_write_batched
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.reference.rope import rope
from zinc_rt.kernels.weight import Weight


def rms_norm_fused_rope_kv_write(
    math: Arithmetic,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    q_norm_w: Weight | None,
    k_norm_w: Weight | None,
    cos: Weight,
    sin: Weight,
    position: np.ndarray,
    slot: np.ndarray,
    page_table: np.ndarray,
    kv_k: np.ndarray,
    kv_v: np.ndarray,
    *,
    eps: float,
    head_dim: int,
    mode: str,
    page_tokens: int = 16,
    q_skip: int = 0,
) -> np.ndarray:
    """Norm and rotate q, and write k [T, K] and v [T, V] to the cache. Return the new q [T, heads * head_dim].

    q is [T, heads * (head_dim + q_skip)]: the columns behind each head are ignored.

    The results equal those of RMS_NORM (if a norm weight is given), ROPE and KV_WRITE_BATCHED bit for bit.
    """
    if q_skip:
        q = q.reshape(len(q), -1, head_dim + q_skip)[..., :head_dim].reshape(len(q), -1)
    if q_norm_w is not None:
        q = rms_norm(math, q, q_norm_w, eps=eps, size=head_dim)
    if k_norm_w is not None:
        k = rms_norm(math, k, k_norm_w, eps=eps, size=head_dim)
    q = rope(math, q, position, cos, sin, head_dim=head_dim, mode=mode)
    k = rope(math, k, position, cos, sin, head_dim=head_dim, mode=mode)
    kv_write_batched(math, k, v, position, slot, page_table, kv_k, kv_v, page_tokens=page_tokens)
    return q
