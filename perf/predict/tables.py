"""Tables of a prediction: dispatches by lost time, and models before and after fusing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.cost.dispatch import LIMITS, DispatchCost
from zinc_rt.host.terminal import Column, Table
from zinc_rt.perf.predict.ceilings import DispatchGroup

_LOST = ("", "grid", "MB", "waves", "in flight kB", "run µs", "GB/s %", "issue %", "LDS %", "launch µs", "lost µs")


def make_lost_table(groups: Sequence[DispatchGroup]) -> Table:
    """Format a row for identical dispatches: the figures of each, and the loss of all."""
    right = [Column(name, right=True) for name in _LOST]
    return Table(["kernel", "op", *right, "limit"], [_make_lost_row(group) for group in groups])


def _make_lost_row(group: DispatchGroup) -> list[Any]:
    one, work = group.first.cost, group.first.work
    return [
        work.kernel,
        work.op,
        f"{len(group.each)} x",
        "x".join(map(str, work.grid)),
        f"{work.moved_bytes / 1e6:.2f}",
        one.resident_waves,
        f"{one.in_flight_bytes / 1e3:.0f}",
        f"{1e6 * one.running:.1f}",
        f"{100 * one.bandwidth_share:.0f}",
        f"{100 * one.issue / one.running:.0f}" if one.running else "",
        f"{100 * one.lds / one.running:.0f}" if one.running else "",
        f"{1e6 * one.launch:.1f}",
        f"{1e6 * group.lost:.0f}",
        one.limit,
    ]


def make_lost_measure(group: DispatchGroup) -> dict[str, Any]:
    """Return the same as JSON, times in seconds."""
    one, work = group.first.cost, group.first.work
    return {
        "kernel": work.kernel,
        "op": work.op,
        "labels": [label for item in group.each for label in item.work.labels],
        "count": len(group.each),
        "grid": list(work.grid),
        "workgroups": work.workgroups,
        "waves_a_workgroup": work.waves_a_workgroup,
        "waves_a_simd": work.report.waves,
        "resident_waves": one.resident_waves,
        "rounds": one.rounds,
        "read_bytes": work.read_bytes,
        "written_bytes": work.written_bytes,
        "wave_bytes": work.wave_bytes,
        "instructions": work.waves.instructions,
        "issued": work.issued,
        "load_bytes": work.waves.load_bytes,
        "store_bytes": work.waves.store_bytes,
        "vector_flops": work.waves.vector_flops,
        "matrix_ops": dict(work.waves.matrix_ops),
        "loads_in_flight_a_wave": work.report.in_flight.loads,
        "bytes_in_flight_a_wave": work.report.in_flight.bytes,
        "in_flight_bytes": one.in_flight_bytes,
        "seconds": _cost_seconds(one),
        "bandwidth_share": one.bandwidth_share,
        "limit": one.limit,
        "lost_seconds": group.lost,
    }


def _cost_seconds(cost: DispatchCost) -> dict[str, float]:
    return {name: getattr(cost, name) for name in (*LIMITS, "running", "ideal")}


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """A figure of a step, without fused nodes and merged dispatches and as executed."""

    name: str
    plain: float
    as_run: float

    def __str__(self) -> str:
        digits = 1 if self.name == "tokens_per_second" else 0
        return f"{self.plain:,.{digits}f} -> {self.as_run:,.{digits}f}"


def make_models_table(rows: Sequence[tuple[str, Sequence[BeforeAfter]]]) -> Table:
    names = ["dispatches", "barriers", "MB", "tok/s"]
    return Table(["", *(Column(name, right=True) for name in names)], [[model, *speeds] for model, speeds in rows])
