"""From logits to tokens on gfx1201."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.elementwise_rows import row_shape
from zinc_rt.kernels.launch import Launch, Ref

ORDERINGS = frozenset({"canonical-1"})
COUNTS = "step.counts"


def argmax(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    rows, vocab = row_shape(graph, node.inputs[0])
    yield Launch("argmax", (Ref(node.inputs[0]), Ref(node.outputs[0])), (vocab,), (rows, 1, 1))


def stream_out(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token, out_slot, ring, cursor = node.inputs
    room = int(graph.buffers[ring].shape[0])
    yield Launch("stream_out", tuple(map(Ref, (token, out_slot, ring, cursor, COUNTS))), (room,))


def verify_k(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    sequences, drafted = row_shape(graph, node.inputs[0])
    yield Launch("verify_k", tuple(map(Ref, (*node.inputs, *node.outputs))), (drafted,), (sequences, 1, 1))


ROWS: tuple[Entry, ...] = (
    Entry(Op.ARGMAX, argmax, ORDERINGS),
    Entry(Op.STREAM_OUT, stream_out, ORDERINGS),
    Entry(Op.VERIFY_K, verify_k, ORDERINGS),
)
