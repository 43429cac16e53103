"""Dequantise small weights of any type into a temporary, for kernels that read float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from zinc_rt.ir.dtypes import INDEX
from zinc_rt.ir.graph import BufferSpec, Node, OpGraph
from zinc_rt.kernels.entry import Entry, Rejects
from zinc_rt.kernels.launch import SYNC, Launch, Operand, Ref, Stride, Sync, Temp

F32_BYTES = 4

Dequantise = Callable[[str, BufferSpec, Temp], Launch]
"""(a weight's name, what it is, where to) -> the launch that makes packed float32 rows of it."""


def convert_to_f32(
    dequantise: Dequantise, graph: OpGraph, launches: Iterable[Launch | Sync]
) -> Iterator[Launch | Sync]:
    """Replace every weight that is not float32 by a temporary of packed float32 rows. Weights that a launch passes
    with a Stride are excepted: their kernels read any type."""
    steps = list(launches)
    temps = {name: _make_temp(name, spec) for name, spec in _list_others(graph, steps).items()}
    for name, temp in temps.items():
        yield dequantise(name, graph.buffers[name], temp)
    if temps:
        yield SYNC
    for step in steps:
        yield step if isinstance(step, Sync) else replace(step, buffers=_rewrite_step(step, temps))


def accept_any_vectors(entry: Entry, dequantise: Dequantise, refusal: Rejects) -> Entry:
    """Extend a row of float32 kernels to small weights of any type: its launches are converted by as_f32.
    `refusal` refuses weights that cannot be dequantised."""

    def code(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        return convert_to_f32(dequantise, graph, entry.code(node, graph, capacity))

    def rejects(node: Node, graph: OpGraph) -> str | None:
        return entry.rejects(node, graph) or refusal(node, graph)

    return replace(entry, code=code, weight_dtypes=None, rejects=rejects)


def is_weight(spec: BufferSpec) -> bool:
    return spec.role in ("weight", "constant")


def count_rows(spec: BufferSpec) -> tuple[int, int]:
    """Return (rows, columns) of a vector or a matrix."""
    *leading, k = (int(dim) for dim in spec.shape)
    assert len(leading) < 2, f"{spec.shape}: only vectors and matrices are supported"
    return (leading[0] if leading else 1), k


def _list_others(graph: OpGraph, steps: list[Launch | Sync]) -> dict[str, BufferSpec]:
    buffers = [buffer for step in steps if isinstance(step, Launch) for buffer in step.buffers]
    strided = {buffer.name for buffer in buffers if isinstance(buffer, Stride)}
    names = dict.fromkeys(buffer.name for buffer in buffers if isinstance(buffer, Ref))
    specs = {name: graph.buffers[name] for name in names if name in graph.buffers and name not in strided}
    return {name: spec for name, spec in specs.items() if is_weight(spec) and spec.dtype not in ("f32", INDEX)}


def _make_temp(name: str, spec: BufferSpec) -> Temp:
    rows, k = count_rows(spec)
    return Temp(f"f32:{name}", F32_BYTES * rows * k)


def _rewrite_step(step: Launch, temps: dict[str, Temp]) -> tuple[Operand | None, ...]:
    return tuple(temps[b.name] if isinstance(b, Ref) and b.name in temps else b for b in step.buffers)
