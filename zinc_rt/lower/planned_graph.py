"""A lowered graph with its dispatches: the input of dispatch-based tiers, and the content of cached plans."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.lower.dispatch_plan import DispatchPlan, dispatch_plan
from zinc_rt.lower.lowered_graph import LoweredGraph
from zinc_rt.mem.plan import MemoryPlan


@dataclass(frozen=True, slots=True)
class PlannedGraph:
    """A graph, its memory plan and its dispatches.

    `dispatches` are those of `graph` in the memory of `plan`; the kernel table is no longer needed. `timed` is
    that of LoweredGraph.
    """

    graph: OpGraph
    plan: MemoryPlan
    ordering: str
    dispatches: DispatchPlan
    timed: bool = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that run, in order."""
        return tuple(node for node in self.graph.nodes if node.op is not Op.BARRIER)


def plan_graph(lowered: LoweredGraph) -> PlannedGraph:
    """Plan the dispatches of a lowered graph. Raise UnsupportedError like dispatch_plan."""
    return PlannedGraph(lowered.graph, lowered.plan, lowered.ordering, dispatch_plan(lowered), lowered.timed)


def plan_dispatches(program: LoweredGraph | PlannedGraph) -> DispatchPlan:
    """Return the dispatches, planning them now if necessary."""
    return program.dispatches if isinstance(program, PlannedGraph) else dispatch_plan(program)
