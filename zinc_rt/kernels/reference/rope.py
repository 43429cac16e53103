"""ROPE: rotary position embedding from the host's cos/sin tables."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def rope(
    math: Arithmetic,
    x: np.ndarray,
    position: np.ndarray,
    cos: Weight,
    sin: Weight,
    *,
    head_dim: int,
    mode: str,
    offset: int = 0,
) -> np.ndarray:
    """Rotate x [T, heads * head_dim] by position i32 [T], cos and sin (ctx, R) -> the same shape.

    In each head the dims [offset, offset + 2R) are rotated in pairs (2j, 2j+1) for mode "norm" or (j, j+R) for
    "neox"; the others pass through. Frequencies, scaling and magnitude are all in the tables.
    """
    pairs = cos.shape[-1]
    y = x.reshape(len(x), -1, head_dim).copy()
    turning = y[..., offset : offset + 2 * pairs]
    if mode == "norm":
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., :pairs], turning[..., pairs:]
    c = math.dequantise(cos[position])[:, None, :]
    s = math.dequantise(sin[position])[:, None, :]
    a, b = first.copy(), second.copy()
    first[...] = a * c - b * s
    second[...] = a * s + b * c
    return y.reshape(x.shape)
