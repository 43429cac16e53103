"""FLASH_ATTN, FLASH_ATTN_BATCHED: causal attention over a paged cache, one query a token."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.paging import cache_rows, read_cache
from zinc_rt.kernels.reference.sigmoid_mul import sigmoid_mul
from zinc_rt.kernels.weight import Weight


def flash_attn(
    math: Arithmetic,
    q: np.ndarray,
    kv_k: np.ndarray,
    kv_v: np.ndarray,
    position: np.ndarray,
    slot: np.ndarray,
    page_table: np.ndarray,
    gate: np.ndarray | None = None,
    sinks: Weight | None = None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    page_tokens: int = 16,
    gate_skip: int = 0,
) -> np.ndarray:
    """Attend q [T, heads * head_dim] to the cached keys of each token's own slot -> [T, heads * value_dim].

    A query at position p sees keys 0..p, or with a window W only p-W+1..p. The tokens' own keys are in the
    cache already. Query head h reads key head h // (heads / kv_heads). With a cap, scores are SOFTCAP of
    themselves. With sinks (heads,), the softmax of each head has one more term of that logit, which is neither
    scaled nor capped nor masked and adds nothing to the result. With a gate
    [T, heads * (gate_skip + value_dim)], the result is SIGMOID_MUL of it by the last value_dim columns of each
    head's gate.
    """
    q = q.reshape(-1, heads, head_dim)
    out = np.empty((len(q), heads, value_dim), np.float32)
    for item in np.unique(slot):
        queries = np.flatnonzero(slot == item)
        index = position[queries][:, None]
        keys = np.arange(int(index.max()) + 1)
        visible = keys <= index
        if window:
            visible &= index - keys < window
        # a page outside the window may have been reused: the last key replaces its keys
        kept = np.where(visible.any(axis=0), keys, keys[-1])
        rows = cache_rows(page_table, int(item), kept, page_tokens)
        out[queries] = math.attention(
            q[queries],
            read_cache(kv_k, rows).reshape(-1, kv_heads, head_dim),
            read_cache(kv_v, rows).reshape(-1, kv_heads, value_dim),
            visible,
            scale,
            cap,
            None if sinks is None else math.dequantise(sinks),
        )
    result = out.reshape(len(q), -1)
    if gate is None:
        return result
    return sigmoid_mul(math, result, gate.reshape(len(q), heads, -1)[..., gate_skip:].reshape(len(q), -1))


def flash_attn_batched(
    math: Arithmetic,
    q: np.ndarray,
    kv_k: np.ndarray,
    kv_v: np.ndarray,
    position: np.ndarray,
    slot: np.ndarray,
    page_table: np.ndarray,
    sinks: Weight | None = None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    page_tokens: int = 16,
) -> np.ndarray:
    """Compute FLASH_ATTN without a gate."""
    return flash_attn(
        math,
        q,
        kv_k,
        kv_v,
        position,
        slot,
        page_table,
        sinks=sinks,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        scale=scale,
        window=window,
        cap=cap,
        page_tokens=page_tokens,
    )
