"""The memory map of each variant a log ran: every allocation, and what lies in it."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.cli.output import readable_size
from zinc_rt.engine.resident import capacity_of
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.serial import from_bytes
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader

SHOWN = 12  # placements of one allocation


def memory_maps(log: LogReader) -> Iterator[str]:
    """The plan is a function of graph, key and tapping, so it is made again here."""
    graphs: dict[int, tuple[OpGraph, bool]] = {}
    for record in log:
        if isinstance(record, records.GraphCreated):
            graphs[record.graph] = (from_bytes(log.blob(record.ir)), record.tapped)
        elif isinstance(record, records.VariantAdded) and record.graph in graphs:
            graph, tapped = graphs[record.graph]
            plan = plan_memory(graph, capacity=capacity_of(record.key), tap=tapped)
            yield from _map(plan, record.key, tapped)


def _map(plan: MemoryPlan, key: tuple[int, ...], tapped: bool) -> Iterator[str]:
    shape = ",".join(map(str, key))
    yield f"{plan.graph} {shape}{', tapped' if tapped else ''}: {readable_size(plan.total_bytes)}"
    for name, allocation in plan.allocations.items():
        inside = sorted(
            (place.offset_bytes, place.size_bytes, buffer)
            for buffer, place in plan.placements.items()
            if place.allocation == name
        )
        yield f"  {allocation.heap.value:<12} {allocation.size_bytes:>12}  {name}, {len(inside)} buffers"
        for offset, size_bytes, buffer in inside[:SHOWN]:
            yield f"    {offset:#10x} {size_bytes:>12}  {buffer}"
        if len(inside) > SHOWN:
            yield f"    and {len(inside) - SHOWN} more"
