"""Chains of additions, each two launches over a temporary: a small program to plan and encode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Grid, Launch, Ref, Sync, Temp
from zinc_rt.lower import DispatchPlan, LoweredGraph, dispatch_plan, lower
from zinc_rt.mem.plan import plan_memory

ONE = {"tokens": 1, "sequences": 1, "rows": 1, "entries": 1}


def make_chain(grid: Grid, capacity: Mapping[str, int], *, adds: int = 2) -> LoweredGraph:
    def list_launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        half = Temp("half", 1000)
        yield Launch("first", (Ref(node.inputs[0]), half), (7, 1.5), grid)
        yield SYNC
        yield Launch("second", (half, None, Ref(node.outputs[0], 16)), (-1,), grid)

    builder = Builder("chain")
    builder.buffer("step.counts", (8,), "i32", "step")
    for index in range(adds + 1):
        builder.buffer(f"act.x[{index}]", ("tokens", 4), "f32", "activation")
    for index in range(adds):
        builder.node(Op.ADD, (f"act.x[{index}]", f"act.x[{index}]"), (f"act.x[{index + 1}]",), label=f"x-{index}")
    graph = builder.build()
    entry = Entry(Op.ADD, list_launches, frozenset(["canonical-1"]))
    return lower(graph, (entry,), plan_memory(graph, capacity=capacity), ordering="canonical-1", tier="t1")


def plan_chain(grid: Grid, capacity: Mapping[str, int] = ONE, *, adds: int = 2) -> DispatchPlan:
    return dispatch_plan(make_chain(grid, capacity, adds=adds))
