"""Decode the five most common block formats to small integers and scales, in the layout of ggml-common.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.dtypes import find_block


@dataclass(frozen=True, slots=True)
class Blocks:
    """Decoded blocks: weight = (d * scale) * q - dmin * minimum; an absent part leaves its factor or term out.

    `...` are the weight's leading dimensions, B its blocks a row, S sub-blocks a block, E elements a sub-block.
    """

    q: np.ndarray  # int8 [..., B, S, E]
    d: np.ndarray  # float32 [..., B]
    scale: np.ndarray | None = None  # float32 [..., B, S], integers
    dmin: np.ndarray | None = None  # float32 [..., B]
    minimum: np.ndarray | None = None  # float32 [..., B, S], integers

    def dequantise(self) -> np.ndarray:
        """Dequantise to float32 [..., B * S * E], rounded as ggml rounds."""
        d = self.d[..., None] if self.scale is None else self.d[..., None] * self.scale
        values = np.multiply(self.q, d[..., None], dtype=np.float32)
        if self.dmin is not None and self.minimum is not None:
            values -= (self.dmin[..., None] * self.minimum)[..., None]
        return values.reshape(*values.shape[:-3], -1)


def unpack(dtype: str, raw: np.ndarray) -> Blocks:
    """Decode `raw`, uint8 [..., bytes per row]. Raise KeyError for a dtype not in UNPACK."""
    return UNPACK[dtype](raw.reshape(*raw.shape[:-1], -1, find_block(dtype)[1]))


def _half(bytes2: np.ndarray) -> np.ndarray:
    return bytes2.view(np.float16)[..., 0].astype(np.float32)


def _q8_0(block: np.ndarray) -> Blocks:  # d, 32 x i8
    return Blocks(block[..., None, 2:].view(np.int8), _half(block[..., :2]))


def _q4_0(block: np.ndarray) -> Blocks:  # d, 16 bytes: low nibbles are elements 0-15, high ones 16-31
    q = np.empty((*block.shape[:-1], 1, 32), np.int8)
    _nibbles(block[..., None, 2:], q)
    q -= 8
    return Blocks(q, _half(block[..., :2]))


def _q4_k(block: np.ndarray) -> Blocks:  # d, dmin, 12 bytes of scales, 128 bytes: 4 pairs of sub-blocks
    q = np.empty((*block.shape[:-1], 8, 32), np.int8)
    _nibbles(block[..., 16:].reshape(*block.shape[:-1], 4, 32), q.reshape(*block.shape[:-1], 4, 64))
    scale, minimum = _scales_and_minimums(block[..., 4:16])
    return Blocks(q, _half(block[..., :2]), scale, _half(block[..., 2:4]), minimum)


def _q5_k(block: np.ndarray) -> Blocks:  # as q4_k, with 32 bytes of fifth bits between: bit s for sub-block s
    low = _q4_k(np.concatenate([block[..., :16], block[..., 48:]], axis=-1))
    high = block[..., 16:48]
    for s in range(8):
        low.q[..., s, :] |= (((high >> s) & 1) << 4).view(np.int8)
    return low


def _q6_k(block: np.ndarray) -> Blocks:  # 2 x 64 bytes of low nibbles, 2 x 32 bytes of high bit pairs, scales, d
    lead = block.shape[:-1]
    q = np.empty((*lead, 2, 4, 32), np.int8)
    _nibbles(block[..., :128].reshape(*lead, 2, 64), q.reshape(*lead, 2, 128))
    high = block[..., 128:192].reshape(*lead, 2, 32)
    for s in range(4):
        q[..., s, :] |= (((high >> (2 * s)) & 3) << 4).view(np.int8)
    q -= 32
    scale = block[..., 192:208].view(np.int8).astype(np.float32)
    return Blocks(q.reshape(*lead, 16, 16), _half(block[..., 208:]), scale)


def _nibbles(packed: np.ndarray, out: np.ndarray) -> None:
    """Unpack packed[..., n] to out[..., 2n]: all low nibbles, then all high ones."""
    half = packed.shape[-1]
    np.bitwise_and(packed, 15, out=out[..., :half].view(np.uint8))
    np.right_shift(packed, 4, out=out[..., half:].view(np.uint8))


def _scales_and_minimums(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decode 12 bytes to 8 six-bit scales and 8 six-bit minimums: ggml-quants.c get_scale_min_k4."""
    a, b, c = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scale = np.concatenate([a & 63, (c & 15) | ((a >> 2) & 48)], axis=-1)
    minimum = np.concatenate([b & 63, (c >> 4) | ((b >> 2) & 48)], axis=-1)
    return scale.astype(np.float32), minimum.astype(np.float32)


UNPACK: dict[str, Callable[[np.ndarray], Blocks]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
}
