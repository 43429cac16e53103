"""Elementwise opcodes on gfx1201: nodes to launches. elementwise.inc describes the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from zinc_rt.ir.graph import ABSENT, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Temp

ORDERINGS = frozenset({"canonical-1"})
COLUMNS = 256  # of one row to a workgroup; elementwise.inc
SLICE_COLUMNS = 512

Buffer = Ref | Temp
Count = int | str
ACTIVATIONS = {"silu": "swiglu", "gelu": "geglu"}


def rowwise(
    kernel: str, buffers: tuple[Buffer | None, ...], rows: Count, columns: int, *constants: int | float
) -> Launch:
    """One of the elementwise kernels over f32 [rows, columns] buffers."""
    return Launch(kernel, buffers, (columns, *constants), (-(-columns // COLUMNS), rows, 1))


def swiglu_launch(
    gate: Buffer, up: Buffer, y: Buffer, *, rows: Count, columns: int, activation: str = "silu"
) -> Launch:
    """y = activation(gate) * up over f32 [rows, columns]; activation silu or gelu."""
    return rowwise(ACTIVATIONS[activation], (gate, up, y), rows, columns)


def add_launch(a: Buffer, b: Buffer, y: Buffer, *, rows: Count, columns: int) -> Launch:
    """y = a + b over f32 [rows, columns]."""
    return rowwise("add", (a, b, y), rows, columns)


def sigmoid_mul_launch(x: Buffer, gate: Buffer, y: Buffer, *, rows: Count, columns: int) -> Launch:
    """y = x * sigmoid(gate) over f32 [rows, columns]."""
    return rowwise("sigmoid_mul", (x, gate, y), rows, columns)


def row_shape(graph: Graph, name: str) -> tuple[Count, int]:
    """(rows: a number or a symbol, columns) of a buffer seen as a matrix: the first dimension by all others."""
    first, *others = graph.buffers[name].shape
    return first, prod(int(dim) for dim in others)


def _binary(kernel: str, node: Node, graph: Graph) -> Iterator[Launch]:
    a, b = (Ref(name) for name in node.inputs)
    yield rowwise(kernel, (a, b, Ref(node.outputs[0])), *row_shape(graph, node.inputs[0]))


def swiglu(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _binary("swiglu", node, graph)


def geglu(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _binary("geglu", node, graph)


def moe_swiglu(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _binary(ACTIVATIONS[str(node.attrs.get("activation", "silu"))], node, graph)


def sigmoid_mul(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _binary("sigmoid_mul", node, graph)


def add(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield from _binary("add", node, graph)


def scale(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, weight = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]), None if weight == ABSENT else Ref(weight))
    yield rowwise("scale", buffers, *row_shape(graph, x), float(node.attrs.get("factor", 1.0)))


def row_scale(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, table = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]), Ref(position), Ref(table))
    yield rowwise("row_scale", buffers, *row_shape(graph, x))


def softcap(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    (x,) = node.inputs
    buffers = (Ref(x), Ref(node.outputs[0]))
    yield rowwise("softcap", buffers, *row_shape(graph, x), float(node.attrs["cap"]))


def slice_columns(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    (x,), (y,) = node.inputs, node.outputs
    group, offset, size = (int(node.attrs[name]) for name in ("group", "offset", "size"))
    rows, columns = row_shape(graph, x)
    groups = columns // group
    if groups and size:
        yield Launch(
            "slice",
            (Ref(x), Ref(y)),
            (group, offset, size, columns, groups * size),
            (groups, rows, -(-size // SLICE_COLUMNS)),
        )


def _row(op: Op, code: object) -> Entry:
    return Entry(op, code, ORDERINGS, weight_dtypes=frozenset({"f32"}))


ROWS: tuple[Entry, ...] = (
    _row(Op.SWIGLU, swiglu),
    _row(Op.GEGLU, geglu),
    _row(Op.MOE_SWIGLU, moe_swiglu),
    _row(Op.SIGMOID_MUL, sigmoid_mul),
    _row(Op.ADD, add),
    _row(Op.SCALE, scale),
    _row(Op.ROW_SCALE, row_scale),
    _row(Op.SLICE, slice_columns),
    _row(Op.SOFTCAP, softcap),
)
