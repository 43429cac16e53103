"""From logits to tokens on gfx1201, and the page table's upkeep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.elementwise_rows import row_shape
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp

ORDERINGS = frozenset({"canonical-1"})
COUNTS = "step.counts"
MOST_TOKENS = 1 << 18  # a logit of the sort: 256 a work-item
PAIR_BYTES = 8  # key and id
WEIGHT_BLOCK = 16  # weights that sample_draw loads at a time
WEIGHTS_PER_GROUP = 1024


def argmax(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    """A second output, where the first logit lies that is no number, is one that older graphs do not ask for."""
    rows, vocab = row_shape(graph, node.inputs[0])
    token, nonfinite = (*(Ref(name) if name else None for name in node.outputs), None)[:2]
    yield Launch("argmax", (Ref(node.inputs[0]), token, nonfinite), (vocab,), (rows, 1, 1))


def sample(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    """Rows that are greedy have argmax's token, which the last kernel replaces in the others."""
    logits, seed, sampling, choice, position = map(Ref, node.inputs)
    token = Ref(node.outputs[0])
    rows, vocab = row_shape(graph, logits.name)
    places = -(-vocab // WEIGHT_BLOCK) * WEIGHT_BLOCK
    row_bytes = PAIR_BYTES * places
    room = row_bytes * (capacity[rows] if isinstance(rows, str) else rows)
    pairs, spare = Temp("pairs", room), Temp("spare", room)
    sizes = (vocab, places, row_bytes)
    yield Launch("argmax", (logits, token, None), (vocab,), (rows, 1, 1))
    yield Launch("sample_sort", (logits, sampling, pairs, spare), sizes, (rows, 1, 1))
    yield SYNC
    groups = -(-places // WEIGHTS_PER_GROUP)
    yield Launch("sample_weights", (pairs, sampling, spare), sizes, (rows, groups, 1))
    yield SYNC
    yield Launch("sample_draw", (pairs, sampling, spare, seed, choice, position, token), sizes, (rows, 1, 1))


def _vocabulary(node: Node, graph: Graph) -> str | None:
    """Why SAMPLE does not take the node."""
    _, vocab = row_shape(graph, node.inputs[0])
    if vocab <= MOST_TOKENS:
        return None
    return f"{node.inputs[0]} has rows of {vocab} logits; the sort takes up to {MOST_TOKENS}"


def stream_out(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token, out_slot, ring, cursor = node.inputs
    room = int(graph.buffers[ring].shape[0])
    yield Launch("stream_out", tuple(map(Ref, (token, out_slot, ring, cursor, COUNTS))), (room,))


def table_store(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    yield Launch("table_store", tuple(map(Ref, (*node.inputs, COUNTS))))


def verify_k(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    sequences, drafted = row_shape(graph, node.inputs[0])
    yield Launch("verify_k", tuple(map(Ref, (*node.inputs, *node.outputs))), (drafted,), (sequences, 1, 1))


ROWS: tuple[Entry, ...] = (
    Entry(Op.ARGMAX, argmax, ORDERINGS),
    Entry(Op.SAMPLE, sample, ORDERINGS, rejects=_vocabulary),
    Entry(Op.STREAM_OUT, stream_out, ORDERINGS),
    Entry(Op.VERIFY_K, verify_k, ORDERINGS),
    Entry(Op.TABLE_STORE, table_store, ORDERINGS),
)
