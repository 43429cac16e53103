"""Small weights of any type for kernels that read float32: dequantised into a temporary first.

as_f32(node, graph, launches)     the launches, reading float32
matrix(graph, name)               a float32 matrix and its stride, as operands
any_vectors(entry)                a row of float32 kernels, for small weights of any type
vector_refusal(node, graph)       why that cannot be, or None
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from zinc_rt.ir.dtypes import INDEX
from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Stride, Sync, Temp
from zinc_rt.kernels.native.types import type_number, type_refusal

F32_BYTES = 4


def as_f32(node: Node, graph: OpGraph, launches: Iterable[Launch | Sync]) -> Iterator[Launch | Sync]:
    """Every weight that is not float32 becomes a temporary of packed float32 rows, but those of which a launch
    takes a Stride: their kernels read any type themselves."""
    steps = list(launches)
    made = {name: _temp(name, spec) for name, spec in _quantised(graph, steps).items()}
    for name, temp in made.items():
        yield _dequantise(name, graph.buffers[name], temp)
    if made:
        yield SYNC
    for step in steps:
        yield step if isinstance(step, Sync) else replace(step, buffers=_rewritten(step, made))


def any_vectors(entry: Entry) -> Entry:
    """The row with its code's launches through as_f32."""

    def code(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        return as_f32(node, graph, entry.code(node, graph, capacity))

    def rejects(node: Node, graph: OpGraph) -> str | None:
        return entry.rejects(node, graph) or vector_refusal(node, graph)

    return replace(entry, code=code, weight_dtypes=None, rejects=rejects)


def matrix(graph: OpGraph, name: str) -> tuple[Ref, Stride | None]:
    """Two operands of a kernel that reads float32 rows: where the file has them, with their stride; of another
    type packed by as_f32, with none."""
    return Ref(name), Stride(name, -2) if graph.buffers[name].dtype == "f32" else None


def vector_refusal(node: Node, graph: OpGraph, *others: str) -> str | None:
    """Of the node's weights but `others`, which are matrices that their kernels read themselves."""
    for name in node.inputs:
        spec = None if name == ABSENT or name in others else graph.buffers[name]
        if spec is None or not _is_weight(spec) or spec.dtype == INDEX:
            continue
        if refusal := type_refusal(spec.dtype):
            return refusal
        if spec.dtype != "f32" and len(spec.shape) > 2:
            return f"{name} is {spec.dtype} with {len(spec.shape)} dimensions: native kernels read f32 there"
    return None


def _quantised(graph: OpGraph, steps: list[Launch | Sync]) -> dict[str, BufferSpec]:
    buffers = [buffer for step in steps if isinstance(step, Launch) for buffer in step.buffers]
    strided = {buffer.name for buffer in buffers if isinstance(buffer, Stride)}
    names = dict.fromkeys(buffer.name for buffer in buffers if isinstance(buffer, Ref))
    specs = {name: graph.buffers[name] for name in names if name in graph.buffers and name not in strided}
    return {name: spec for name, spec in specs.items() if _is_weight(spec) and spec.dtype not in ("f32", INDEX)}


def _is_weight(spec: BufferSpec) -> bool:
    return spec.role in ("weight", "constant")


def _temp(name: str, spec: BufferSpec) -> Temp:
    rows, k = _rows(spec)
    return Temp(f"f32:{name}", F32_BYTES * rows * k)


def _dequantise(name: str, spec: BufferSpec, temp: Temp) -> Launch:
    rows, k = _rows(spec)
    stride = Stride(name, -2) if len(spec.shape) > 1 else None
    return Launch("dequantise", (Ref(name), temp, stride), (type_number(spec.dtype), k), (rows, 1, 1))


def _rows(spec: BufferSpec) -> tuple[int, int]:
    *leading, k = (int(dim) for dim in spec.shape)
    assert len(leading) < 2, f"{spec.shape}: vector_refusal allows vectors and matrices"
    return (leading[0] if leading else 1), k


def _rewritten(step: Launch, made: dict[str, Temp]) -> tuple[Ref | Temp | Stride | None, ...]:
    return tuple(made[b.name] if isinstance(b, Ref) and b.name in made else b for b in step.buffers)
