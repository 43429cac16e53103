"""From logits to tokens on gfx1201."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.elementwise_rows import row_shape
from zinc_rt.kernels.launch import Launch, Ref

ORDERINGS = frozenset({"canonical-1"})


def argmax(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    rows, vocab = row_shape(graph, node.inputs[0])
    yield Launch("argmax", (Ref(node.inputs[0]), Ref(node.outputs[0])), (vocab,), (rows, 1, 1))


ROWS: tuple[Entry, ...] = (Entry(Op.ARGMAX, argmax, ORDERINGS),)
