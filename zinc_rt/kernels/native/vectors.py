"""Small weights of any type for kernels that read float32: dequantised into a temporary first.

as_f32(node, graph, launches)     the launches, reading float32
matrix(graph, name)               a float32 matrix and its stride, as operands
any_vectors(entry)                a row of float32 kernels, for small weights of any type
vector_refusal(node, graph)       why that cannot be, or None
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zinc_rt.ir.dtypes import INDEX
from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Stride, Sync, Temp
from zinc_rt.kernels.native.types import check_type, find_type_number
from zinc_rt.kernels.rows import vectors


def convert_to_f32(node: Node, graph: OpGraph, launches: Iterable[Launch | Sync]) -> Iterator[Launch | Sync]:
    return vectors.convert_to_f32(make_dequantise_launch, graph, launches)


def accept_any_vectors(entry: Entry) -> Entry:
    return vectors.accept_any_vectors(entry, make_dequantise_launch, check_vectors)


def make_matrix_operands(graph: OpGraph, name: str) -> tuple[Ref, Stride | None]:
    """Return two operands of a kernel that reads float32 rows: an f32 matrix in the file with its stride, or
    another type packed by as_f32, without a stride."""
    return Ref(name), Stride(name, -2) if graph.buffers[name].dtype == "f32" else None


def check_vectors(node: Node, graph: OpGraph, *others: str) -> str | None:
    """Return why the node's weights cannot be read. `others` are ignored: matrices that kernels read
    themselves.
    """
    for name in node.inputs:
        spec = None if name == ABSENT or name in others else graph.buffers[name]
        if spec is None or not vectors.is_weight(spec) or spec.dtype == INDEX:
            continue
        if refusal := check_type(spec.dtype):
            return refusal
        if spec.dtype != "f32" and len(spec.shape) > 2:
            return (
                f"{name} is {spec.dtype} with {len(spec.shape)} dimensions: native kernels support only f32 here"
            )
    return None


def make_dequantise_launch(name: str, spec: BufferSpec, temp: Temp) -> Launch:
    """Return the launch that dequantises a vector or a matrix into a temporary, f32."""
    rows, k = vectors.count_rows(spec)
    stride = Stride(name, -2) if len(spec.shape) > 1 else None
    return Launch("dequantise", (Ref(name), temp, stride), (find_type_number(spec.dtype), k), (rows, 1, 1))
