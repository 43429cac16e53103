"""Dequantise or convert weights at upload if a kernel set does not support their type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.rows import repack
from zinc_rt.kernels.weight import Weight

Expansions = Mapping[str, str]
"""Weight types on the device by their type in the file; other types are unchanged."""

_STORED: Expansions = {
    "tq1_0": "f16",  # a float16 times -1, 0 or 1
    **dict.fromkeys(
        ("q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "mxfp4", "nvfp4", "tq2_0", "iq4_nl", "iq4_xs"), "f32"
    ),
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"), "f32"),
}
EVERY_OTHER_TYPE: Expansions = {
    dtype: stored for dtype, stored in _STORED.items() if dtype not in repack.WEIGHT_TYPES
}
_VALUES: Mapping[str, np.dtype[Any]] = {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32)}


def count_packed_bytes(expansions: Expansions, weight: Weight) -> int:
    """Return the size of `pack_weight`'s result."""
    return _round_up_to_words(repack.count_packed_bytes(_find_shape(expansions, weight)))


def pack_weight(expansions: Expansions, weight: Weight) -> np.ndarray:
    """Pack a weight as it is stored with repack.pack_weight, uint8, 1-D, zero-padded to a whole word, because
    kernels load words. Raise UnsupportedError for a type without a reference dequantisation."""
    packed = repack.pack_weight(expand_weight(expansions, weight))
    short = _round_up_to_words(packed.nbytes) - packed.nbytes
    return np.concatenate([packed, np.zeros(short, np.uint8)]) if short else packed


def expand_weight(expansions: Expansions, weight: Weight) -> Weight:
    """Return the weight as it is stored; unchanged if its type is not expanded."""
    dtype = expansions.get(weight.dtype)
    if dtype is None:
        return weight
    rows, k = prod(weight.shape[:-1]), weight.shape[-1]
    raw = np.ascontiguousarray(weight.raw).reshape(rows, count_row_bytes(weight.dtype, k))
    values = np.empty((rows, k), _VALUES[dtype])
    item = max(1, repack.CHUNK_ELEMENTS // k)
    with np.errstate(all="ignore"):  # a scale of any bits
        for first in range(0, rows, item):
            part = raw[first : first + item]
            values[first : first + item] = dequantise(Weight(weight.dtype, (len(part), k), part))
    return Weight(dtype, weight.shape, values.reshape(weight.shape))


@dataclass(frozen=True, slots=True)
class ExpandedType:
    """The number and bytes of weights of one type that are stored as another type."""

    dtype: str
    stored: str
    tensors: int
    file_bytes: int
    device_bytes: int

    def __str__(self) -> str:
        tensors = "tensor" if self.tensors == 1 else "tensors"
        return (
            f"{self.tensors} {self.dtype} {tensors} expanded to {self.stored}: "
            f"{self.file_bytes / 1e6:,.1f} MB in the file, {self.device_bytes / 1e6:,.1f} MB on the device"
        )


def list_expanded_types(expansions: Expansions, weights: Iterable[Weight]) -> tuple[ExpandedType, ...]:
    """Return the cost of expansion for a model's weights, by type."""
    by_type: dict[str, list[Weight]] = {}
    for weight in weights:
        if weight.dtype in expansions:
            by_type.setdefault(weight.dtype, []).append(weight)
    return tuple(
        ExpandedType(
            dtype,
            expansions[dtype],
            len(group),
            sum(weight.nbytes for weight in group),
            sum(count_packed_bytes(expansions, weight) for weight in group),
        )
        for dtype, group in sorted(by_type.items())
    )


def _find_shape(expansions: Expansions, weight: Weight) -> Weight:
    """Return the weight as it is stored, for its sizes only."""
    return Weight(expansions.get(weight.dtype, weight.dtype), weight.shape, weight.raw)


def _round_up_to_words(size_bytes: int) -> int:
    return -(-size_bytes // 4) * 4
