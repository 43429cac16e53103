"""Sampling with slot records, and log-probabilities: nodes to launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.operands import row_shape
from zinc_rt.kernels.rows.sampling import check_vocabulary, make_draw
from zinc_rt.kernels.rows.tuning import Tuning


def logits_adjust(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    operands = tuple(None if name == ABSENT else Ref(name) for name in (*node.inputs, *node.outputs))
    rows, vocab = row_shape(graph, node.inputs[0])
    record, counts, end_id, bias_id, _, mask, _ = node.inputs[3:]
    bias_rows, biases = (0, 0) if bias_id == ABSENT else graph.buffers[bias_id].shape
    mask_rows = 0 if mask == ABSENT else graph.buffers[mask].shape[0]
    sizes = (vocab, *(graph.buffers[name].shape[0] for name in (record, counts, end_id)))
    constants = tuple(map(int, (*sizes, bias_rows, biases, mask_rows)))
    yield Launch("logits_adjust", operands, constants, (rows, -(-vocab // tuning.sample_columns), 1))


def sample_slots(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    """Compute as SAMPLE does. For a row without a candidate, the token is first set to -1 and the temperature to
    0, so that nothing is sampled.
    """
    logits, row_slot, position, record, counts = map(Ref, node.inputs)
    token = Ref(node.outputs[0])
    rows, vocab = row_shape(graph, logits.name)
    room = 4 * (capacity[rows] if isinstance(rows, str) else rows)
    seed, sampling, choice = Temp("seed", 2 * room), Temp("sampling", 4 * room), Temp("choice", room)
    yield Launch("argmax", (logits, token, None), (vocab,), (rows, 1, 1))
    yield SYNC
    arguments = (logits, token, row_slot, record, seed, sampling, choice)
    yield Launch("slot_operands", arguments, (vocab,), (rows, 1, 1))
    yield SYNC
    yield from make_draw(tuning, node, graph, capacity, sampling, (seed, choice, position, token))
    yield SYNC
    yield Launch("count_tokens", (token, row_slot, record, counts), (vocab,), (rows, 1, 1))


def logprobs(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    logits, token = map(Ref, node.inputs)
    logprob, top_id, top_logprob = (*map(Ref, node.outputs), None, None)[:3]
    rows, vocab = row_shape(graph, logits.name)
    room = 4 * (capacity[rows] if isinstance(rows, str) else rows)
    best, norm = Temp("best", room), Temp("norm", 2 * room)
    yield Launch("argmax", (logits, best, None), (vocab,), (rows, 1, 1))
    yield SYNC
    yield Launch("log_sum", (logits, best, norm), (vocab,), (rows, 1, 1))
    yield SYNC
    sizes = (vocab, int(node.attrs["top"]))
    yield Launch("logprobs", (logits, token, norm, logprob, top_id, top_logprob), sizes, (rows, 1, 1))


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    too_many = partial(check_vocabulary, tuning)
    return (
        Entry(Op.LOGITS_ADJUST, partial(logits_adjust, tuning), tuning.orderings),
        Entry(Op.SAMPLE_SLOTS, partial(sample_slots, tuning), tuning.orderings, rejects=too_many),
        Entry(Op.LOGPROBS, logprobs, tuning.orderings),
    )
