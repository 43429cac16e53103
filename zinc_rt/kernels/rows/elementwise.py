"""Elementwise opcodes: nodes to launches. elementwise.inc describes the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.kernels.rows.operands import F32, Buffer, Count, row_shape
from zinc_rt.kernels.rows.tuning import Tuning

ACTIVATIONS = {"silu": "swiglu", "gelu": "geglu", "clamped": "swiglu_clamped"}  # their kernels


def make_rowwise_launch(
    tuning: Tuning,
    kernel: str,
    buffers: tuple[Buffer | None, ...],
    rows: Count,
    columns: int,
    *constants: int | float,
) -> Launch:
    """Launch one of the elementwise kernels over f32 [rows, columns] buffers."""
    return Launch(kernel, buffers, (columns, *constants), (-(-columns // tuning.columns), rows, 1))


def make_slice_launch(
    tuning: Tuning, x: Buffer, y: Buffer, rows: Count, columns: int, part: tuple[int, int, int]
) -> Launch:
    """Launch the copy of a part (group, offset, size) of each group of the columns of x f32 [rows, columns]."""
    group, offset, size = part
    groups = columns // group
    grid = groups, rows, -(-size // tuning.slice_columns)
    return Launch("slice", (x, y), (group, offset, size, columns, groups * size), grid)


def _make_binary_launch(
    tuning: Tuning, kernel: str, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch]:
    a, b = (Ref(name) for name in node.inputs)
    yield make_rowwise_launch(tuning, kernel, (a, b, Ref(node.outputs[0])), *row_shape(graph, node.inputs[0]))


def moe_swiglu(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _make_binary_launch(
        tuning, ACTIVATIONS[str(node.attrs.get("activation", "silu"))], node, graph, capacity
    )


def scale(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, weight = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]), None if weight == ABSENT else Ref(weight))
    yield make_rowwise_launch(tuning, "scale", buffers, *row_shape(graph, x), float(node.attrs.get("factor", 1.0)))


def row_scale(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, table = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]), Ref(position), Ref(table))
    yield make_rowwise_launch(tuning, "row_scale", buffers, *row_shape(graph, x))


def softcap(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    (x,) = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]))
    yield make_rowwise_launch(tuning, "softcap", buffers, *row_shape(graph, x), float(node.attrs["cap"]))


def gelu(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    (x,) = node.inputs
    yield make_rowwise_launch(tuning, "gelu", (Ref(x), Ref(node.outputs[0])), *row_shape(graph, x))


def slice_columns(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    (x,), (y,) = node.inputs, node.outputs
    group, offset, size = (int(node.attrs[name]) for name in ("group", "offset", "size"))
    rows, columns = row_shape(graph, x)
    if columns // group and size:
        yield make_slice_launch(tuning, Ref(x), Ref(y), rows, columns, (group, offset, size))


BINARY = {Op.SWIGLU: "swiglu", Op.GEGLU: "geglu", Op.SIGMOID_MUL: "sigmoid_mul", Op.ADD: "add"}  # their kernels
CODES: dict[Op, Callable[..., Iterator[Launch]]] = {
    Op.MOE_SWIGLU: moe_swiglu,
    Op.SCALE: scale,
    Op.ROW_SCALE: row_scale,
    Op.SLICE: slice_columns,
    Op.SOFTCAP: softcap,
    Op.GELU: gelu,
}


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    codes = {op: partial(_make_binary_launch, tuning, kernel) for op, kernel in BINARY.items()}
    codes |= {op: partial(code, tuning) for op, code in CODES.items()}
    return tuple(Entry(op, code, tuning.orderings, F32) for op, code in codes.items())
