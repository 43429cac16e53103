"""Choose a kernel table entry for every node and insert the barriers that memory accesses require.

Calls between two barriers may run concurrently, so a barrier is inserted before a call that accesses bytes written
since the last barrier, or writes bytes read since then. Conflicts are detected on bytes, not names: two buffers
that the memory plan places in the same bytes conflict.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.lower.lowered_graph import Barrier, Call, LoweredGraph
from zinc_rt.mem.plan import MemoryPlan


def lower(graph: OpGraph, entries: Iterable[Entry], plan: MemoryPlan, *, ordering: str, tier: str) -> LoweredGraph:
    """Lower a graph. Raise UnsupportedError naming every node without an entry, with each candidate's reason."""
    entries = tuple(entries)
    refused: list[str] = []
    steps: list[Call | Barrier] = []
    pending = _Pending(plan)
    for node in graph.nodes:
        if node.op is Op.BARRIER:
            if pending.has_access(node.inputs):
                steps.append(Barrier(node.inputs))
                pending.clear()
            continue
        chosen = choose_entry(node, graph, entries, ordering)
        if isinstance(chosen, str):
            refused.append(f"{node!r}: {chosen}")
            continue
        conflicts = pending.find_conflicts(node)
        if conflicts:
            steps.append(Barrier(conflicts))
            pending.clear()
        pending.add(node)
        steps.append(Call(node, chosen))
    if refused:
        shown = "\n  ".join(refused[:8]) + (f"\n  and {len(refused) - 8} more" if len(refused) > 8 else "")
        raise UnsupportedError(f"{tier} cannot run {graph.name} in {ordering}:\n  {shown}")
    return LoweredGraph(graph, plan, ordering, tuple(steps))


def find_refusal(node: Node, graph: OpGraph, entries: Iterable[Entry], ordering: str) -> str | None:
    """Return why no entry supports the node; None if one does, and for a BARRIER, which needs none."""
    if node.op is Op.BARRIER:
        return None
    chosen = choose_entry(node, graph, entries, ordering)
    return chosen if isinstance(chosen, str) else None


def choose_entry(node: Node, graph: OpGraph, entries: Iterable[Entry], ordering: str) -> Entry | str:
    """Return the first entry that supports the node, or the reasons why none does."""
    candidates = _group_by_op(tuple(entries)).get(node.op, ())
    reasons = []
    for entry in candidates:
        if ordering not in entry.orderings:
            continue
        reason = _find_entry_refusal(entry, node, graph)
        if reason is None:
            return entry
        reasons.append(f"{entry.variant}: {reason}" if entry.variant else reason)
    return "; ".join(reasons) or (
        f"no kernel in ordering {ordering}" if candidates else "no kernel for this opcode"
    )


@lru_cache(maxsize=16)
def _group_by_op(entries: tuple[Entry, ...]) -> dict[Op, list[Entry]]:
    table: dict[Op, list[Entry]] = {}
    for entry in entries:
        table.setdefault(entry.op, []).append(entry)
    return table


def _find_entry_refusal(entry: Entry, node: Node, graph: OpGraph) -> str | None:
    if entry.weight_dtypes is not None:
        for port, name in zip(OPS[node.op].inputs, node.inputs, strict=True):
            if port.kind == "weight" and name != ABSENT and graph.buffers[name].dtype not in entry.weight_dtypes:
                return f"{name} is {graph.buffers[name].dtype}"
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False):
        if port.kind == "cache" and graph.buffers[name].dtype not in entry.cache_dtypes:
            supported = ", ".join(sorted(entry.cache_dtypes))
            return f"{name} is {graph.buffers[name].dtype}; keys and values are supported in {supported}"
    return entry.rejects(node, graph)


Ranges = dict[str, list[tuple[int, int]]]  # by allocation: first byte, and the one behind the last


class _Pending:
    """The byte ranges accessed since the last barrier."""

    def __init__(self, plan: MemoryPlan) -> None:
        self._places = plan.placements
        self.clear()

    def clear(self) -> None:
        self._read: Ranges = {}
        self._written: Ranges = {}

    def add(self, node: Node) -> None:
        for ranges, names in ((self._read, node.inputs), (self._written, node.outputs)):
            for name in names:
                if name != ABSENT:
                    location = self._places[name]
                    touched = location.offset_bytes, location.offset_bytes + location.size_bytes
                    ranges.setdefault(location.allocation, []).append(touched)

    def find_conflicts(self, node: Node) -> tuple[str, ...]:
        hit = {name for name in node.inputs if self._has_overlap(name, self._written)}
        hit |= {
            name
            for name in node.outputs
            if self._has_overlap(name, self._written) or self._has_overlap(name, self._read)
        }
        return tuple(sorted(hit))

    def has_access(self, names: tuple[str, ...]) -> bool:
        """Return whether an explicit barrier over `names` (none: everything) orders any access."""
        if not names:
            return bool(self._written or self._read)
        return any(self._has_overlap(name, self._written) for name in names)

    def _has_overlap(self, name: str, ranges: Ranges) -> bool:
        if name == ABSENT:
            return False
        location = self._places[name]
        start, end = location.offset_bytes, location.offset_bytes + location.size_bytes
        return any(first < end and start < behind for first, behind in ranges.get(location.allocation, ()))
