"""canonical-1 once more, one float32 scalar at a time, from docs/canonical-1.md alone: what tests compare with.

Imports nothing from zinc_rt, so a mistake has to be made twice to go unseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

F = np.float32
EXP = [
    F(float.fromhex(t))
    for t in ["0x1p-1", "0x1.555554p-3", "0x1.5554e8p-5", "0x1.11130ep-7", "0x1.6d4ccap-10", "0x1.9dfc08p-13"]
]

LOG = [  # highest power first
    F(float.fromhex(text))
    for text in [
        "0x1.147e3cp-4",
        "-0x1.de16ecp-4",
        "0x1.e6c688p-4",
        "-0x1.fc2666p-4",
        "0x1.233b26p-3",
        "-0x1.555c4cp-3",
        "0x1.99a47ap-3",
        "-0x1.000006p-2",
        "0x1.555548p-2",
    ]
]


def dot(a: Sequence[np.float32], b: Sequence[np.float32]) -> np.float32:
    with np.errstate(all="ignore"):
        lanes = [[F(0)] * 4 for _ in range(32)]
        for k, (left, right) in enumerate(zip(a, b, strict=True)):
            lane, sub = (k // 4) % 32, k % 4
            lanes[lane][sub] = F(lanes[lane][sub] + F(F(left) * F(right)))
        return butterfly_sum([F(F(s[0] + s[1]) + F(s[2] + s[3])) for s in lanes])


def butterfly_sum(lanes: list[np.float32]) -> np.float32:
    for step in (1, 2, 4, 8, 16):
        lanes = [F(lanes[i] + lanes[i ^ step]) for i in range(32)]
    assert len({lane.tobytes() for lane in lanes}) == 1 or math.isnan(lanes[0])
    return lanes[0]


def exp(x: np.float32) -> np.float32:
    x = F(min(max(x, F(-87)), F(87)))
    n = np.rint(F(x * F(float.fromhex("0x1.715476p+0"))))
    r = F(F(x - F(n * F(float.fromhex("0x1.62e4p-1")))) - F(n * F(float.fromhex("0x1.7f7d1cp-20"))))
    p = EXP[5]
    for c in EXP[4::-1]:
        p = F(F(p * r) + c)
    y = F(F(F(F(r * r) * p) + r) + F(1))
    return F(math.ldexp(float(y), int(n)))


def log(x: np.float32) -> np.float32:
    if math.isnan(x) or x < 0:
        return F(math.nan)
    if x == 0 or math.isinf(x):
        return F(math.inf if x > 0 else -math.inf)
    m, e = math.frexp(float(x))
    if F(m) < F(float.fromhex("0x1.6a09e6p-1")):
        m, e = m + m, e - 1
    n, f = F(e), F(F(m) - F(1))
    f2 = F(f * f)
    p = LOG[0]
    for c in LOG[1:]:
        p = F(F(p * f) + c)
    y = F(F(F(f * f2) * p) + F(n * F(float.fromhex("0x1.7f7d1cp-20"))))
    y = F(y - F(F(0.5) * f2))
    return F(F(f + y) + F(n * F(float.fromhex("0x1.62e4p-1"))))


def sigmoid(x: np.float32) -> np.float32:
    return F(F(1) / F(F(1) + exp(F(-x))))


def silu(x: np.float32) -> np.float32:
    return F(x * sigmoid(x))


def tanh(x: np.float32) -> np.float32:
    return F(F(F(2) * sigmoid(F(F(2) * x))) - F(1))


def gelu(x: np.float32) -> np.float32:
    inner = F(F(1) + F(F(float.fromhex("0x1.6e4e26p-5")) * F(x * x)))
    u = F(F(F(float.fromhex("0x1.988454p-1")) * x) * inner)
    return F(x * sigmoid(F(F(2) * u)))


def softplus(x: np.float32) -> np.float32:
    return x if x > 20 else log(F(F(1) + exp(x)))


def rsqrt(x: np.float32) -> np.float32:
    return F(F(1) / F(np.sqrt(x)))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: np.float32) -> np.ndarray:
    n, heads, _ = q.shape
    out = np.zeros((n, heads, v.shape[2]), F)
    for i in range(n):
        for h in range(heads):
            kv = h // (heads // k.shape[1])
            out[i, h] = attend_head(q[i, h], k[:, kv], v[:, kv], mask[i], scale)
    return out


def attend_head(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, scale: np.float32
) -> list[np.float32]:
    width = v.shape[1]
    m = l = None
    o: list[np.float32] = []
    for chunk in range((len(k) + 255) // 256):
        keys = [j for j in range(chunk * 256, min(len(k), chunk * 256 + 256)) if visible[j]]
        if not keys:
            continue
        score = {j: F(dot(q, k[j]) * scale) for j in keys}
        m_c = max(score.values())
        l_g = [F(0)] * 8
        o_g = [[F(0)] * width for _ in range(8)]
        for j in keys:
            g = (j - chunk * 256) // 32
            p = exp(F(score[j] - m_c))
            l_g[g] = F(l_g[g] + p)
            o_g[g] = [F(o_g[g][d] + F(p * v[j, d])) for d in range(width)]
        l_c = sum_eight(l_g)
        o_c = [sum_eight([o_g[g][d] for g in range(8)]) for d in range(width)]
        if m is None or l is None:
            m, l, o = m_c, l_c, o_c
            continue
        m_new = max(m, m_c)
        a, b = exp(F(m - m_new)), exp(F(m_c - m_new))
        l = F(F(l * a) + F(l_c * b))
        o = [F(F(o[d] * a) + F(o_c[d] * b)) for d in range(width)]
        m = m_new
    return [F(0)] * width if l is None else [F(value / l) for value in o]


def sum_eight(s: list[np.float32]) -> np.float32:
    return F(F(F(s[0] + s[1]) + F(s[2] + s[3])) + F(F(s[4] + s[5]) + F(s[6] + s[7])))


def q8_dot(
    x: np.ndarray,
    q: np.ndarray,
    scale: np.ndarray,
    d: np.ndarray,
    minimum: np.ndarray | None = None,
    dmin: np.ndarray | None = None,
) -> np.float32:
    """One row: x[K], integers q[B, S, E], scale[B, S] and minimum[B, S], d[B] and dmin[B]."""
    blocks, subs, elements = q.shape
    block = subs * elements
    lanes, lanes_min = [F(0)] * 32, [F(0)] * 32
    for b in range(blocks):
        part = [F(value) for value in x[b * block : (b + 1) * block]]
        amax = max(abs(value) for value in part)
        if amax < 2.0**-100:
            dx, qx = F(0), [0] * block
        else:
            factor = F(F(127) / amax)
            dx, qx = F(amax / F(127)), [int(np.rint(F(value * factor))) for value in part]
        if block == 32:
            dx = F(np.float16(dx))
        total = total_min = 0
        for s in range(subs):
            for e in range(elements):
                total += int(scale[b, s]) * int(q[b, s, e]) * qx[s * elements + e]
                total_min += 0 if minimum is None else int(minimum[b, s]) * qx[s * elements + e]
        lanes[b % 32] = F(lanes[b % 32] + F(F(total) * F(F(d[b]) * dx)))
        if dmin is not None:
            lanes_min[b % 32] = F(lanes_min[b % 32] + F(F(total_min) * F(F(dmin[b]) * dx)))
    return butterfly_sum(lanes) if dmin is None else F(butterfly_sum(lanes) - butterfly_sum(lanes_min))
