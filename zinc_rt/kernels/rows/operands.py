"""Functions shared by the rows: a launch's buffers, and the shapes derived from them."""

from __future__ import annotations

from math import prod

from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.ir.graph import OpGraph
from zinc_rt.kernels.launch import Ref, Temp

Buffer = Ref | Temp
Count = int | str
F32 = frozenset({"f32"})


def row_shape(graph: OpGraph, name: str) -> tuple[Count, int]:
    """Return (rows, columns) of a buffer as a matrix: the first dimension, a number or a symbol, by all others."""
    first, *others = graph.buffers[name].shape
    return first, prod(int(dim) for dim in others)


def find_row_bytes(graph: OpGraph, name: str) -> int:
    """Return the bytes of a row of a buffer: of everything behind its first dimension."""
    spec = graph.buffers[name]
    *outer, last = (int(dim) for dim in spec.shape[1:])
    return prod(outer) * count_row_bytes(spec.dtype, last)


def find_last_dim(graph: OpGraph, name: str) -> int:
    return int(graph.buffers[name].shape[-1])
