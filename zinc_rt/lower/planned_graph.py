"""A lowered graph with its dispatches: all that a tier of dispatches builds from, and what a start reads back."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.lower.dispatch_plan import DispatchPlan, dispatch_plan
from zinc_rt.lower.lowered_graph import LoweredGraph
from zinc_rt.mem.plan import MemoryPlan


@dataclass(frozen=True, slots=True)
class PlannedGraph:
    """`dispatches` are those of `graph` in the memory of `plan`; no kernel table is needed any more. `timed` as
    LoweredGraph has it."""

    graph: OpGraph
    plan: MemoryPlan
    ordering: str
    dispatches: DispatchPlan
    timed: bool = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those that run, in order."""
        return tuple(node for node in self.graph.nodes if node.op is not Op.BARRIER)


def planned(lowered: LoweredGraph) -> PlannedGraph:
    """Raises UnsupportedError as dispatch_plan does."""
    return PlannedGraph(lowered.graph, lowered.plan, lowered.ordering, dispatch_plan(lowered), lowered.timed)


def dispatches_of(program: LoweredGraph | PlannedGraph) -> DispatchPlan:
    """The dispatches, planned now where that was not done before."""
    return program.dispatches if isinstance(program, PlannedGraph) else dispatch_plan(program)
