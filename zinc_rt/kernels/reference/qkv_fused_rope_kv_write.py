"""QKV_FUSED_ROPE_KV_WRITE: norm and projections, then norms of heads, rotation and the cache write."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.rms_norm_fused_qkv import rms_norm_fused_qkv
from zinc_rt.kernels.reference.rms_norm_fused_rope_kv_write import rms_norm_fused_rope_kv_write
from zinc_rt.kernels.weight import Weight


def qkv_fused_rope_kv_write(
    math: Arithmetic,
    x: np.ndarray,
    norm_w: Weight,
    q_w: Weight,
    k_w: Weight,
    v_w: Weight,
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
    head_eps: float = 1e-6,
    page_tokens: int = 16,
    q_skip: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Project x [T, D] as RMS_NORM_FUSED_QKV does, then norm, rotate and write the results to the cache as
    RMS_NORM_FUSED_ROPE_KV_WRITE does, with head_eps. Return q [T, Q], before and after.
    """
    q, k, v = rms_norm_fused_qkv(math, x, norm_w, q_w, k_w, v_w, None, None, None, eps=eps)
    rotated = rms_norm_fused_rope_kv_write(
        math,
        q,
        k,
        v,
        q_norm_w,
        k_norm_w,
        cos,
        sin,
        position,
        slot,
        page_table,
        kv_k,
        kv_v,
        eps=head_eps,
        head_dim=head_dim,
        mode=mode,
        page_tokens=page_tokens,
        q_skip=q_skip,
    )
    return q, rotated
