"""SAMPLE, SAMPLE_SLOTS, LOGPROBS: nodes to launches of sample.c and slots.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.kernels.rows.operands import Buffer, row_shape
from zinc_rt.kernels.rows.tuning import Tuning

CANDIDATE_BYTES = 8  # key and id


def sample(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    rows, vocab = row_shape(graph, node.inputs[0])
    operands: tuple[Buffer, ...] = (
        *map(Ref, (*node.inputs, *node.outputs)),
        *_make_temporaries(rows, vocab, capacity),
    )
    yield Launch("sample", operands, (vocab,), (rows, 1, 1))


def sample_slots(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    logits, _, _, record, counts = node.inputs
    rows, vocab = row_shape(graph, logits)
    operands: tuple[Buffer, ...] = (
        *map(Ref, node.inputs),
        Ref(node.outputs[0]),
        *_make_temporaries(rows, vocab, capacity),
    )
    sizes = (vocab, *(int(graph.buffers[name].shape[0]) for name in (record, counts)))
    yield Launch("sample_slots", operands, sizes, (rows, 1, 1))


def _make_temporaries(rows: int | str, vocab: int, capacity: Mapping[str, int]) -> tuple[Temp, Temp]:
    """Return two temporaries. A row is sorted from the first into the second; the first then holds weights and
    running sums.
    """
    room = CANDIDATE_BYTES * vocab * (capacity[rows] if isinstance(rows, str) else rows)
    return Temp("pairs", room), Temp("spare", room)


def logprobs(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    rows, vocab = row_shape(graph, node.inputs[0])
    operands = (*map(Ref, (*node.inputs, *node.outputs)), None, None)[:5]
    yield Launch("logprobs", operands, (vocab, int(node.attrs["top"])), (rows, 1, 1))


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.SAMPLE, sample, tuning.orderings),
        Entry(Op.SAMPLE_SLOTS, sample_slots, tuning.orderings),
        Entry(Op.LOGPROBS, logprobs, tuning.orderings),
    )
