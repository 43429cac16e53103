"""Quantise float32 rows to ggml's weight types, with scales from the extremes of each sub-block.

The `gguf` package writes the legacy types and mxfp4. K-quants are written here; their layout is that of
block_q2_K … block_q6_K in ggml/src/ggml-common.h. llama.cpp's quantiser searches for better scales, so its
bytes differ; both are valid encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from zinc_rt.host.errors import InputError, UnsupportedError

SUPER_BLOCK = 256  # QK_K in ggml-common.h


def quantize(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Encode `rows` (…, n) float32 as ggml type `dtype`, in the layout of zinc_rt.model.gguf.Tensor.data.

    f32 and f16 keep the shape, bf16 becomes uint16 of that shape, blocks become uint8 (…, bytes per row).
    The same rows always give the same bytes. Raises InputError if n is not a multiple of the block size or a value
    cannot be encoded.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    kind = find_ggml_type(dtype)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if rows.shape[-1] % block:
        raise InputError(f"{dtype} needs rows with a multiple of {block} values, got {rows.shape[-1]}")
    if not np.isfinite(rows).all():
        raise InputError(f"cannot quantise rows to {dtype}: they contain infinities or NaN")
    if dtype == "f32":
        return rows
    if block > 1:  # far below what a float16 scale reaches, and gguf divides by such a block's largest value
        rows = np.where(np.abs(rows) < 1e-30, np.float32(0), rows)
    if dtype in K_QUANTS:
        blocks = rows.reshape(-1, SUPER_BLOCK)
        encoded = K_QUANTS[dtype](blocks)
        assert encoded.shape == (len(blocks), block_bytes)
        return encoded.reshape(*rows.shape[:-1], -1)
    data = gguf.quants.quantize(rows, kind)
    return data.view(np.uint16) if dtype == "bf16" else data


def find_ggml_type(dtype: str) -> GGMLQuantizationType:
    if dtype not in WRITABLE:
        raise UnsupportedError(f"cannot write {dtype!r}", next=f"use one of {', '.join(WRITABLE)}")
    return GGMLQuantizationType[dtype.upper()]


def _pack(values: np.ndarray, bits: int, run: int) -> np.ndarray:
    """Pack small numbers (blocks, 256) into bytes: `run` neighbours share a bit position of `run` neighbouring
    bytes.
    """
    lanes = 8 // bits
    lanes_first = values.astype(np.uint8).reshape(len(values), -1, lanes, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, lanes, 1)
    return np.bitwise_or.reduce(lanes_first << shifts, axis=2).reshape(len(values), -1)


def _round_to_half(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (blocks,) as float16 bytes (blocks, 2), and as the float32 value of these bytes (blocks, 1)."""
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise InputError("values are too large for a block with a float16 scale")
    return halves.reshape(-1, 1).view(np.uint8), halves.astype(np.float32).reshape(-1, 1)


def _divide(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return values / by, with 0 where by is 0."""
    return np.divide(values, by, out=np.zeros(np.broadcast(values, by).shape, np.float32), where=by != 0)


class _Affine(NamedTuple):
    """A block whose value = d * scale * q - dmin * minimum, scale and minimum per sub-block."""

    d: np.ndarray  # (blocks, 2) bytes
    dmin: np.ndarray  # (blocks, 2) bytes
    scales: np.ndarray  # (blocks, sub-blocks) small integers
    minima: np.ndarray
    q: np.ndarray  # (blocks, 256)


def _quantise_affine(blocks: np.ndarray, sub: int, bits: int, scale_bits: int) -> _Affine:
    parts = blocks.reshape(len(blocks), -1, sub)
    top, scale_top = (1 << bits) - 1, (1 << scale_bits) - 1
    minima = np.maximum(0, -parts.min(axis=2))
    scales = np.maximum(0, parts.max(axis=2) + minima) / top
    d_bytes, d = _round_to_half(scales.max(axis=1) / scale_top)
    dmin_bytes, dmin = _round_to_half(minima.max(axis=1) / scale_top)
    scale_steps = np.clip(np.rint(_divide(scales, d)), 0, scale_top)
    minimum_steps = np.clip(np.rint(_divide(minima, dmin)), 0, scale_top)
    step, offset = (d * scale_steps)[..., None], (dmin * minimum_steps)[..., None]
    q = np.clip(np.rint(_divide(parts + offset, step)), 0, top)
    return _Affine(
        d_bytes,
        dmin_bytes,
        scale_steps.astype(np.uint8),
        minimum_steps.astype(np.uint8),
        q.reshape(len(blocks), SUPER_BLOCK).astype(np.uint8),
    )


class _Symmetric(NamedTuple):
    """A block whose value = d * scale * q, scale and q signed."""

    d: np.ndarray  # (blocks, 2) bytes
    scales: np.ndarray  # (blocks, 16) int
    q: np.ndarray  # (blocks, 256) int


def _quantise_symmetric(blocks: np.ndarray, bits: int, scale_bits: int) -> _Symmetric:
    parts = blocks.reshape(len(blocks), -1, 16)
    bottom, scale_top = 1 << (bits - 1), (1 << (scale_bits - 1)) - 1
    largest = np.take_along_axis(parts, np.abs(parts).argmax(axis=2)[..., None], axis=2)[..., 0]
    scales = largest / -bottom  # the largest value of a sub-block takes the one step more that negatives have
    d_bytes, d = _round_to_half(np.abs(scales).max(axis=1) / scale_top)
    steps = np.clip(np.rint(_divide(scales, d)), -scale_top - 1, scale_top)
    q = np.clip(np.rint(_divide(parts, (d * steps)[..., None])), -bottom, bottom - 1)
    return _Symmetric(d_bytes, steps.astype(np.int8), q.reshape(len(blocks), SUPER_BLOCK).astype(np.int8))


def _pack_six_bit_pairs(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Pack 8 scales and 8 minima of 6 bits into 12 bytes, as in q4_K and q5_K."""
    low_scales, high_scales = scales[:, :4], scales[:, 4:]
    low_minima, high_minima = minima[:, :4], minima[:, 4:]
    return np.concatenate(
        [
            low_scales | (high_scales >> 4) << 6,
            low_minima | (high_minima >> 4) << 6,
            (high_scales & 15) | (high_minima & 15) << 4,
        ],
        axis=1,
    )


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    a = _quantise_affine(blocks, sub=16, bits=2, scale_bits=4)
    return np.concatenate([a.scales | a.minima << 4, _pack(a.q, 2, 32), a.d, a.dmin], axis=1)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    s = _quantise_symmetric(blocks, bits=3, scale_bits=6)
    q = (s.q + 4).astype(np.uint8)
    scales = (s.scales + 32).astype(np.uint8)
    low = (scales[:, :8] & 15) | (scales[:, 8:] & 15) << 4
    high = np.bitwise_or.reduce(
        (scales >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1), axis=1
    )
    return np.concatenate([_pack(q >> 2, 1, 32), _pack(q & 3, 2, 32), low, high, s.d], axis=1)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    a = _quantise_affine(blocks, sub=32, bits=4, scale_bits=6)
    return np.concatenate([a.d, a.dmin, _pack_six_bit_pairs(a.scales, a.minima), _pack(a.q, 4, 32)], axis=1)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    a = _quantise_affine(blocks, sub=32, bits=5, scale_bits=6)
    pairs = _pack_six_bit_pairs(a.scales, a.minima)
    return np.concatenate([a.d, a.dmin, pairs, _pack(a.q >> 4, 1, 32), _pack(a.q & 15, 4, 32)], axis=1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    s = _quantise_symmetric(blocks, bits=6, scale_bits=8)
    q = (s.q + 32).astype(np.uint8)
    return np.concatenate([_pack(q & 15, 4, 64), _pack(q >> 4, 2, 32), s.scales.view(np.uint8), s.d], axis=1)


K_QUANTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
}
WRITABLE = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", *K_QUANTS)
