"""canonical-1's attention: chunks of 256 absolute positions, each reduced separately, merged in index order."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic.activations import tanh
from zinc_rt.kernels.reference.arithmetic.dot import dot, tree
from zinc_rt.kernels.reference.arithmetic.exp_log import exp

CHUNK = 256
GROUPS = 8  # of 32 neighbouring keys
GROUP = CHUNK // GROUPS


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray,
    scale: float,
    cap: float = 0.0,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """Map q[n, H, D], k[J, KV, D], v[J, KV, Dv], mask[n, J] to [n, H, Dv]; see Arithmetic.attention."""
    out = np.zeros((*q.shape[:2], v.shape[2]), np.float32)
    for row, (query, visible) in enumerate(zip(q, mask, strict=True)):
        out[row] = attend_one(query, k, v, visible, np.float32(scale), np.float32(cap), sinks)
    return out


@np.errstate(all="ignore")
def attend_one(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visible: np.ndarray,
    scale: np.float32,
    cap: np.float32,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """Map one query's heads q[H, D] to [H, Dv]. Only visible keys are read. Sinks [H] are a chunk before
    all others, with m = sink, l = 1 and o = 0."""
    m = l = o = None
    if sinks is not None:
        m, l, o = sinks, np.ones(len(q), np.float32), np.zeros((len(q), v.shape[2]), np.float32)
    for first in range(0, len(k), CHUNK):
        keys = np.flatnonzero(visible[first : first + CHUNK])
        if keys.size == 0:
            continue
        m_chunk, l_chunk, o_chunk = _chunk(q, k[first:], v[first:], _neighbours(keys), keys, scale, cap)
        if m is None or l is None or o is None:
            m, l, o = m_chunk, l_chunk, o_chunk
            continue
        m_new = np.maximum(m, m_chunk)
        a, b = exp(m - m_new), exp(m_chunk - m_new)
        l = l * a + l_chunk * b
        o = o * a[:, None] + o_chunk * b[:, None]
        m = m_new
    if o is None or l is None:
        return np.zeros((len(q), v.shape[2]), np.float32)
    return o / l[:, None]


def _neighbours(keys: np.ndarray) -> slice | np.ndarray:
    """Return the keys as a slice if they are adjacent, because indexing with a slice copies nothing."""
    first, last = int(keys[0]), int(keys[-1])
    return slice(first, last + 1) if last - first + 1 == keys.size else keys


def _chunk(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keys: slice | np.ndarray,
    where: np.ndarray,
    scale: np.float32,
    cap: np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute (m[H], l[H], o[H, Dv]) over one chunk's visible keys, at offsets `where` in the chunk.

    Hidden keys get p = 0 and a zero value: adding their +0 changes nothing, since sums that start at +0 are
    never -0.
    """
    heads, (_, kv_heads, width) = len(q), v.shape
    group = heads // kv_heads
    score = np.concatenate([dot(q[h * group : (h + 1) * group, None], k[keys, h]) for h in range(kv_heads)])
    score *= scale  # [H, visible keys]
    if cap:
        score = tanh(score / cap) * cap
    m = score.max(axis=1)  # exact in any order
    p = np.zeros((heads, CHUNK), np.float32)
    p[:, where] = exp(score - m[:, None])
    values = np.zeros((CHUNK, kv_heads, width), np.float32)
    values[where] = v[keys]

    p_of = p.reshape(kv_heads, group, GROUPS, GROUP)
    v_of = values.reshape(GROUPS, GROUP, kv_heads, width).transpose(2, 0, 1, 3)  # [KV, 8, 32, Dv]
    l = np.zeros((kv_heads, group, GROUPS), np.float32)
    o = np.zeros((kv_heads, group, GROUPS, width), np.float32)
    for j in range(GROUP):
        l = l + p_of[..., j]
        o = o + p_of[..., j, None] * v_of[:, None, :, j]
    return m, tree(l).reshape(heads), tree(o.swapaxes(2, 3)).reshape(heads, width)
