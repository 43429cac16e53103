"""Which entry of a kernel set takes a node, and why none does."""

from __future__ import annotations

import pytest
from lower.chains import ONE, make_chain

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.lower import find_refusal
from zinc_rt.lower.lower import choose_entry

CANONICAL = frozenset({"canonical-1"})


def always_reject(node: Node, graph: OpGraph) -> str:
    return "not today"


GOOD = Entry(Op.ADD, None, CANONICAL)
NEVER = Entry(Op.ADD, None, CANONICAL, variant="wide", rejects=always_reject)
OTHER = Entry(Op.SCALE, None, CANONICAL)
FLOAT32 = Entry(Op.ADD, None, frozenset({"float32-dequant"}))


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((GOOD,), None),
        ((NEVER, GOOD), None),
        ((NEVER,), "wide: not today"),
        ((NEVER, NEVER), "wide: not today; wide: not today"),
        ((OTHER,), "no kernel for this opcode"),
        ((), "no kernel for this opcode"),
        ((FLOAT32,), "no kernel in ordering canonical-1"),
        ((FLOAT32, NEVER), "wide: not today"),
    ],
)
def test_node_is_rejected_when_no_entry_takes_it(entries: tuple[Entry, ...], why: str | None) -> None:
    graph = make_chain((1, 1, 1), ONE).graph
    assert find_refusal(graph.nodes[0], graph, entries, "canonical-1") == why


def test_first_entry_that_takes_a_node_runs_it() -> None:
    graph = make_chain((1, 1, 1), ONE).graph
    assert (
        choose_entry(graph.nodes[0], graph, (OTHER, NEVER, GOOD, Entry(Op.ADD, None, CANONICAL)), "canonical-1")
        is GOOD
    )


def test_barrier_needs_no_kernel() -> None:
    graph = make_chain((1, 1, 1), ONE).graph
    assert find_refusal(Node(Op.BARRIER, (), ()), graph, (), "canonical-1") is None
