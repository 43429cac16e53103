"""Detect non-finite numbers in a model file: float elements, and the float scales of quantised blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.dtypes import find_block
from zinc_rt.model.gguf import GGUFFile

# Offsets of a block's float16 scales, from the layouts in ggml-common.h. An mxfp4 block has a power of two
# instead, whose largest code is NaN.
SCALES: dict[str, tuple[int, ...]] = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
    "iq1_s": (0,), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,), "iq3_xxs": (0,), "iq3_s": (0,), "iq4_nl": (0,),
    "iq4_xs": (0,), "tq1_0": (52,), "tq2_0": (64,),
}  # fmt: skip
PLAIN = ("f32", "f16", "bf16", "f64")
NO_FLOATS = ("i8", "i16", "i32", "i64")
MXFP4_NAN = 255
AT_A_TIME = 1 << 16  # blocks


@dataclass(frozen=True, slots=True)
class NonfiniteNumber:
    """A tensor's first non-finite block, of `count` such blocks. In a plain type a block is an element."""

    tensor: str
    dtype: str
    block: int
    value: str  # nan, inf or -inf
    count: int

    @property
    def text(self) -> str:
        what = "element" if self.dtype in PLAIN else "the scale of block"
        more = f", and {self.count - 1} more" if self.count > 1 else ""
        return f"{self.tensor} ({self.dtype}): {what} {self.block} is {self.value}{more}"


def has_scales(dtype: str) -> bool:
    """Return whether a type can be checked."""
    return dtype in SCALES or dtype in PLAIN or dtype in NO_FLOATS or dtype == "mxfp4"


def find_nonfinite_weights(gguf: GGUFFile) -> Iterator[NonfiniteNumber]:
    """Return every tensor with a non-finite number, in the file's order. The whole file is read."""
    for tensor in gguf.tensors.values():
        if (problem := find_nonfinite(tensor.name, tensor.dtype, tensor.data)) is not None:
            yield problem


def find_nonfinite(name: str, dtype: str, data: np.ndarray) -> NonfiniteNumber | None:
    """Check one tensor. Return None if every number is finite or the type is unknown. `data` has the form of
    Tensor.data and Weight.raw."""
    count, first, value = 0, 0, ""
    for start, floats in _iterate_floats(dtype, data):
        bad = ~np.isfinite(floats).all(axis=1)
        if not bad.any():
            continue
        if not count:
            row = floats[int(np.argmax(bad))]
            first, value = start + int(np.argmax(bad)), str(float(row[~np.isfinite(row)][0]))
        count += int(np.count_nonzero(bad))
    return NonfiniteNumber(name, dtype, first, value, count) if count else None


def _iterate_floats(dtype: str, data: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first block, floats of this and the following blocks [blocks, floats]), a part of the tensor at a
    time."""
    if dtype in PLAIN:
        blocks = data.reshape(-1, 1)
    elif dtype in SCALES or dtype == "mxfp4":
        blocks = data.reshape(-1, find_block(dtype)[1])
    else:
        return
    for start in range(0, len(blocks), AT_A_TIME):
        part = blocks[start : start + AT_A_TIME]
        if dtype == "bf16":
            yield start, (part.astype(np.uint32) << 16).view(np.float32)
        elif dtype == "mxfp4":
            yield start, np.where(part[:, :1] == MXFP4_NAN, np.nan, 0.0)
        elif dtype in PLAIN:
            yield start, part
        else:
            scales = [part[:, at : at + 2].copy().view(np.float16) for at in SCALES[dtype]]
            yield start, np.concatenate(scales, axis=1)
