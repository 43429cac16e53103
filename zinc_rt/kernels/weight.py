"""A weight operand of a kernel: kept in the file format, dequantised a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.dtypes import find_block


@dataclass(frozen=True, slots=True)
class Weight:
    """A view of the GGUF's bytes, never a copy.

    `raw` has the dimensions of `shape` but the last: bytes (uint8, whole blocks) for quantised types, elements
    for f32 (float32), f16 (float16), bf16 (uint16) and i32. Strides may be any in all but the last dimension, so
    a slice of a merged tensor is a view too.
    """

    dtype: str  # ggml's name, lower case
    shape: tuple[int, ...]  # logical, row-major: (out, in) for a projection, (experts, out, in) for stacked ones
    raw: np.ndarray

    def __getitem__(self, index: int | slice | np.ndarray) -> Weight:
        """Return a part of the first dimension by index or slice (a row range, one expert)."""
        raw = self.raw[index]
        return Weight(self.dtype, (*raw.shape[:-1], self.shape[-1]), raw)

    @property
    def nbytes(self) -> int:
        elements, size_bytes = find_block(self.dtype)
        return int(np.prod(self.shape, dtype=np.int64)) // elements * size_bytes


def view_bytes(weight: Weight) -> np.ndarray:
    """Return the bytes as in the file: uint8, 1-D."""
    return np.ascontiguousarray(weight.raw).reshape(-1).view(np.uint8)
