"""The cost of each dispatch of a step (zinc_rt/cost/dispatch.py), and equal dispatches together by lost time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.cost.dispatch import DispatchCost, DispatchCounts, compute_cost
from zinc_rt.host.devices import DeviceRow
from zinc_rt.perf.predict.dispatch_work import DispatchWork


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One dispatch and its cost on a device."""

    work: DispatchWork
    cost: DispatchCost


def dispatch_counts(work: DispatchWork) -> DispatchCounts:
    """Return the counts that determine the cost of a dispatch."""
    return DispatchCounts(
        workgroups=work.workgroups,
        waves_a_workgroup=work.waves_a_workgroup,
        waves_a_simd=work.report.waves,
        read_bytes=work.read_bytes,
        moved_bytes=work.moved_bytes,
        load_bytes=work.waves.load_bytes,
        in_flight_loads=work.report.in_flight.loads,
        in_flight_bytes=work.report.in_flight.bytes,
        issued=work.issued,
        lds_bytes=work.waves.lds_bytes,
        vector_flops=work.waves.vector_flops,
        matrix_ops=work.waves.matrix_ops,
        behind_barrier=work.behind_barrier,
    )


def compute_ceiling(work: DispatchWork, device: DeviceRow, assumed: Mapping[str, float]) -> Ceiling:
    """Return the cost with these values of the assumptions."""
    return Ceiling(work, compute_cost(dispatch_counts(work), device, assumed))


@dataclass(frozen=True, slots=True)
class DispatchGroup:
    """Dispatches of one kernel, one grid and one limit, together."""

    each: Sequence[Ceiling]

    @property
    def first(self) -> Ceiling:
        return self.each[0]

    @property
    def lost(self) -> float:
        return sum(one.cost.lost for one in self.each)


def group_by_time_lost(ceilings: Iterable[Ceiling]) -> list[DispatchGroup]:
    """Group identical dispatches with the same opcode, sorted by lost time."""
    groups: dict[tuple[object, ...], list[Ceiling]] = {}
    for item in ceilings:
        work = item.work
        key = (
            work.kernel, work.op, work.grid, work.read_bytes, work.written_bytes, work.behind_barrier,
            item.cost.limit,
        )  # fmt: skip
        groups.setdefault(key, []).append(item)
    return sorted(map(DispatchGroup, groups.values()), key=lambda group: -group.lost)
