"""MLA_ABSORB, MLA_EXPAND, MLA_FLASH_ATTN: DeepSeek's multi-head latent attention."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.flash_attn import flash_attn
from zinc_rt.kernels.reference.paging import read_cache
from zinc_rt.kernels.weight import Weight


def mla_absorb(
    math: Arithmetic, q: np.ndarray, k_b: Weight, *, heads: int, nope: int, rope: int, latent: int
) -> np.ndarray:
    """Compute [k_b . q_nope | q_pe] per head from q [T, heads * (nope + rope)] and k_b (heads, latent, nope)."""
    q = q.reshape(len(q), heads, nope + rope)
    y = np.empty((len(q), heads, latent + rope), np.float32)
    for head in range(heads):
        y[:, head, :latent] = math.linear(q[:, head, :nope], k_b[head])
    y[..., latent:] = q[..., nope:]
    return y.reshape(len(q), -1)


def mla_expand(
    math: Arithmetic, kv: np.ndarray, k_pe: np.ndarray, *, heads: int, nope: int, rope: int, value_dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Expand kv [T, heads * (nope + value_dim)] and k_pe [T, rope], shared by all heads, to k [T, heads * (nope +
    rope)], v [T, heads * value_dim]."""
    kv = kv.reshape(len(kv), heads, nope + value_dim)
    shared = np.broadcast_to(k_pe[:, None, :], (len(kv), heads, rope))
    k = np.concatenate([kv[..., :nope], shared], axis=-1)
    return k.reshape(len(kv), -1), kv[..., nope:].reshape(len(kv), -1)


def mla_flash_attn(
    math: Arithmetic,
    q: np.ndarray,
    kv_latent: np.ndarray,
    kv_pe: np.ndarray,
    position: np.ndarray,
    slot: np.ndarray,
    page_table: np.ndarray,
    v_b: Weight,
    *,
    heads: int,
    latent: int,
    rope: int,
    value_dim: int,
    scale: float,
    page_tokens: int = 16,
) -> np.ndarray:
    """Attend q [T, heads * (latent + rope)] to keys [latent | pe], one key head for all; the values are the
    latents.

    v_b (heads, value_dim, latent) then projects each head's result -> [T, heads * value_dim].
    """
    latents, rotated = (read_cache(cache, slice(None)) for cache in (kv_latent, kv_pe))
    o = flash_attn(
        math,
        q,
        np.concatenate([latents, rotated], axis=-1),
        latents,
        position,
        slot,
        page_table,
        heads=heads,
        kv_heads=1,
        head_dim=latent + rope,
        value_dim=latent,
        scale=scale,
        page_tokens=page_tokens,
    ).reshape(len(q), heads, latent)
    out = np.empty((len(q), heads, value_dim), np.float32)
    for head in range(heads):
        out[:, head] = math.linear(o[:, head], v_b[head])
    return out.reshape(len(q), -1)
