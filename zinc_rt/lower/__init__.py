"""Lowering: which kernel runs each node, in what order, with which barriers."""

from zinc_rt.lower.lower import lower, refusal
from zinc_rt.lower.program import Barrier, Call, Program

__all__ = ["Barrier", "Call", "Program", "lower", "refusal"]
