"""Lowering: which kernel runs each node, in what order, with which barriers, as which dispatches."""

from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan, dispatch_plan
from zinc_rt.lower.lower import lower, refusal
from zinc_rt.lower.lowered_graph import Barrier, Call, LoweredGraph

__all__ = ["Barrier", "Call", "Dispatch", "DispatchPlan", "LoweredGraph", "dispatch_plan", "lower", "refusal"]
