"""A lowered graph: calls and barriers over logical buffer names, the same for every tier."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.sets import Merging
from zinc_rt.mem.plan import MemoryPlan


@dataclass(frozen=True, slots=True)
class Call:
    node: Node
    entry: Entry


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier: earlier calls have completed and are visible to later ones. `buffers` are the reason for it."""

    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph of calls and barriers.

    `timed`: each dispatch runs alone, and the tier records its start and end (backends/times.py). `merging`:
    launches of several nodes may be merged into one dispatch, and may cross the barriers of nodes that they do not
    depend on; None: each node keeps its launches, in order.
    """

    graph: OpGraph
    plan: MemoryPlan
    ordering: str
    steps: tuple[Call | Barrier, ...]
    timed: bool = False
    merging: Merging | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that run, in order."""
        return tuple(call.node for call in self.calls)
