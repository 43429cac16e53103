"""Sampling from logits, and updates of the page table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import ENTRIES, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.operands import Buffer, row_shape
from zinc_rt.kernels.rows.tuning import Tuning

PAIR_BYTES = 8  # key and id


def argmax(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    """Compute ARGMAX. The second output, the index of the first non-finite logit, is absent in older graphs."""
    rows, vocab = row_shape(graph, node.inputs[0])
    token, nonfinite = (*(Ref(name) if name else None for name in node.outputs), None)[:2]
    yield Launch("argmax", (Ref(node.inputs[0]), token, nonfinite), (vocab,), (rows, 1, 1))


def sample(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    """Compute SAMPLE. Greedy rows use argmax's token; the last kernel replaces it in other rows."""
    logits, seed, sampling, choice, position = map(Ref, node.inputs)
    token = Ref(node.outputs[0])
    rows, vocab = row_shape(graph, logits.name)
    yield Launch("argmax", (logits, token, None), (vocab,), (rows, 1, 1))
    yield from make_draw(tuning, node, graph, capacity, sampling, (seed, choice, position, token))


def make_draw(
    tuning: Tuning,
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    sampling: Buffer,
    then: tuple[Buffer, ...],
) -> Iterator[Launch | Sync]:
    """Sort, weigh and draw the non-greedy rows of the node's logits. `then`: the further operands seed, choice,
    position and token.
    """
    logits = Ref(node.inputs[0])
    rows, vocab = row_shape(graph, logits.name)
    places = -(-vocab // tuning.sample_block) * tuning.sample_block
    row_bytes = PAIR_BYTES * places
    room = row_bytes * (capacity[rows] if isinstance(rows, str) else rows)
    pairs, spare = Temp("pairs", room), Temp("spare", room)
    sizes = (vocab, places, row_bytes)
    yield Launch("sample_sort", (logits, sampling, pairs, spare), sizes, (rows, 1, 1))
    yield SYNC
    groups = -(-places // tuning.sample_columns)
    yield Launch("sample_weights", (pairs, sampling, spare), sizes, (rows, groups, 1))
    yield SYNC
    yield Launch("sample_draw", (pairs, sampling, spare, *then), sizes, (rows, 1, 1))


def check_vocabulary(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    """Return why the sort does not support the node's logits."""
    _, vocab = row_shape(graph, node.inputs[0])
    if vocab <= tuning.vocabulary_maximum:
        return None
    return f"{node.inputs[0]} has rows of {vocab} logits; the sort supports at most {tuning.vocabulary_maximum}"


def stream_out(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    *_, record, ring, _ = node.inputs
    sizes = tuple(int(graph.buffers[name].shape[0]) for name in (ring, record))
    yield Launch("stream_out", (*map(Ref, node.inputs), Ref(COUNTS)), sizes)


def table_store(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    """Launch TABLE_STORE. The kernel reads the number of entries from the first page group's count."""
    group = ENTRIES.index(str(graph.buffers[node.inputs[0]].shape[0]))
    yield Launch("table_store", (*map(Ref, node.inputs), Ref(COUNTS, 4 * group)))


def verify_k(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    sequences, drafted = row_shape(graph, node.inputs[0])
    yield Launch("verify_k", tuple(map(Ref, (*node.inputs, *node.outputs))), (drafted,), (sequences, 1, 1))


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    drawn, too_many = partial(sample, tuning), partial(check_vocabulary, tuning)
    return (
        Entry(Op.ARGMAX, argmax, tuning.orderings),
        Entry(Op.SAMPLE, drawn, tuning.orderings, rejects=too_many),
        Entry(Op.STREAM_OUT, stream_out, tuning.orderings),
        Entry(Op.VERIFY_K, verify_k, tuning.orderings),
        Entry(Op.TABLE_STORE, table_store, tuning.orderings),
    )
