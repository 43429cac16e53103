"""SAMPLE: nodes to launches of sample.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.kernels.rows.operands import row_shape
from zinc_rt.kernels.rows.tuning import Tuning

CANDIDATE_BYTES = 8  # key and id


def sample(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    """A row is sorted from one temporary into the other; the first then takes its weights and running sums."""
    logits, seed, sampling, choice, position = map(Ref, node.inputs)
    rows, vocab = row_shape(graph, logits.name)
    room = CANDIDATE_BYTES * vocab * (capacity[rows] if isinstance(rows, str) else rows)
    buffers = (
        *(logits, seed, sampling, choice, position, Ref(node.outputs[0])),
        Temp("pairs", room),
        Temp("spare", room),
    )
    yield Launch("sample", buffers, (vocab,), (rows, 1, 1))


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (Entry(Op.SAMPLE, sample, tuning.orderings),)
