"""Element types of IR buffers: ggml's names, block sizes from the `gguf` package, plus i32 for indices."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

INDEX = "i32"
ACTIVATION = "f32"
CACHE_TYPES = ("f32", "f16", "q8_0")  # of cached keys and values
_ELEMENTS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    INDEX: np.dtype(np.int32),
}


@cache
def find_block(dtype: str) -> tuple[int, int]:
    """Return the elements and bytes of a block of a ggml type, named like "q4_k".

    Raise KeyError for an unknown name.
    """
    elements, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[dtype.upper()]]
    return elements, size_bytes


@cache
def is_dtype(dtype: str) -> bool:
    return dtype.upper() in GGMLQuantizationType.__members__


def count_row_bytes(dtype: str, elements: int) -> int:
    """Return the bytes of one contiguous row. Raise ValueError for a row of partial blocks."""
    per_block, size_bytes = find_block(dtype)
    if elements % per_block:
        raise ValueError(f"{elements} elements are not whole blocks of {per_block}, which a {dtype} row requires")
    return elements // per_block * size_bytes


def find_array_layout(dtype: str, columns: tuple[int, ...]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the NumPy type and inner shape of a buffer that is not a weight. Rows of a block type are uint8, and
    their last dimension is the bytes of a row of blocks. Raise KeyError for an unknown type.
    """
    if dtype in _ELEMENTS:
        return _ELEMENTS[dtype], columns
    *outer, last = columns
    return np.dtype(np.uint8), (*outer, count_row_bytes(dtype, last))
