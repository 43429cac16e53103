"""Lowering: selects the kernel of each node, the order, the barriers and the dispatches."""

from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan, dispatch_plan
from zinc_rt.lower.lower import find_refusal, lower
from zinc_rt.lower.lowered_graph import Barrier, Call, LoweredGraph
from zinc_rt.lower.planned_graph import PlannedGraph, plan_dispatches, plan_graph

__all__ = [
    "Barrier",
    "Call",
    "Dispatch",
    "DispatchPlan",
    "LoweredGraph",
    "PlannedGraph",
    "dispatch_plan",
    "find_refusal",
    "lower",
    "plan_dispatches",
    "plan_graph",
]
