"""Limits of each dispatch: memory bandwidth, latency, instruction slots, LDS, or its launch.

A dispatch's workgroups fill the device in rounds. A round takes the time of its bytes at the memory's bandwidth,
but at least the time of one wave's loads, with one latency for each wait (Little's law); the last round has the
remaining workgroups. The dispatch takes at least the time of its instructions and of its LDS traffic. It is
preceded by its packet, and a barrier if there is one.

The prediction (roofline.py) has only memory and instructions, as if every dispatch filled the device. This one is
in addition to it. Assumptions are rows of zinc_rt/host/facts.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from zinc_rt.host.devices import SIMDS_A_CU, DeviceRow
from zinc_rt.perf.predict.dispatch_work import DispatchWork

Limit = Literal["memory", "latency", "tail", "issue", "lds", "launch"]


@dataclass(frozen=True)
class Ceiling:
    """One dispatch on a device, in seconds. `memory` is the time of its bytes at the bandwidth of long reads;
    `latency` the time of all its rounds of one wave; `tail` the time of the last of several rounds beyond its
    share of memory's time; `launch` that of packet and barrier. `ideal` is the time of its bytes at the specified
    bandwidth.
    """

    work: DispatchWork
    rounds: int
    resident_waves: int
    in_flight_bytes: float
    memory: float
    latency: float
    tail: float
    issue: float
    lds: float
    running: float
    launch: float
    ideal: float

    @property
    def seconds(self) -> float:
        return self.running + self.launch

    @property
    def lost(self) -> float:
        return self.seconds - self.ideal

    @property
    def bandwidth_share(self) -> float:
        """Return the predicted share of the specified bandwidth while it runs."""
        return self.ideal / self.running if self.running else 0.0

    @cached_property
    def limit(self) -> Limit:
        """Return the limit that takes most of its time."""
        parts: dict[Limit, float] = {
            "launch": self.launch,
            "memory": self.memory,
            "latency": self.latency,
            "tail": self.tail,
            "issue": self.issue,
            "lds": self.lds,
        }
        return max(parts, key=parts.__getitem__)


def ceiling_of(work: DispatchWork, device: DeviceRow, assumed: Mapping[str, float]) -> Ceiling:
    """Return the ceiling with these values of the assumptions."""
    simds = device.compute_units * SIMDS_A_CU
    slots = max(1, simds * work.report.waves // work.waves_a_workgroup)  # workgroups resident at the same time
    full, left = divmod(work.workgroups, slots)
    resident = min(work.workgroups, slots) * work.waves_a_workgroup
    peak = device.memory_gbps * 1e9
    memory = work.moved_bytes / (peak * assumed["read_efficiency"])
    pending = min(work.wave_bytes, work.report.in_flight.bytes)
    turns = work.wave_bytes / pending if pending else 0.0
    alone = turns * _latency(work, assumed)  # of one wave, waiting
    a_round, last = memory * slots / work.workgroups, memory * left / work.workgroups
    tail = alone - last if full and 0 < last < alone < a_round else 0.0
    busy = min(1.0, work.workgroups * work.waves_a_workgroup / simds)  # SIMDs that have a wave
    issue = work.issued / (device.issues_a_second * assumed["issue_share"] * busy)
    lds = _lds_bytes(work) / (device.compute_units * busy * assumed["lds_bytes_a_clock"] * device.clock_mhz * 1e6)
    streamed = full * max(a_round, alone) + (max(last, alone) if left else 0.0)
    barrier = assumed["barrier_us"] if work.behind_barrier else 0.0
    return Ceiling(
        work=work,
        rounds=full + bool(left),
        resident_waves=resident,
        in_flight_bytes=resident * pending,
        memory=memory,
        latency=(full + bool(left)) * alone,
        tail=tail,
        issue=issue,
        lds=lds,
        running=max(streamed, issue, lds),
        launch=(assumed["dispatch_us"] + barrier) * 1e-6,
        ideal=work.moved_bytes / peak,
    )


def _latency(work: DispatchWork, assumed: Mapping[str, float]) -> float:
    """Return the seconds of one wait: the memory latency if one of its loads goes to memory. Bytes that waves load
    beyond the dispatch's memory bytes come from a cache.
    """
    waves = work.workgroups * work.waves_a_workgroup
    missing = min(1.0, work.read_bytes / (waves * work.wave_bytes)) if work.wave_bytes else 0.0
    to_memory = 1 - (1 - missing) ** work.report.in_flight.loads
    cached = assumed["cache_latency_ns"]
    return (cached + to_memory * (assumed["memory_latency_ns"] - cached)) * 1e-9


def _lds_bytes(work: DispatchWork) -> float:
    """Return the bytes moved through LDS, extrapolated from the loop with the most loads."""
    loop = work.report.streaming
    waves = work.workgroups * work.waves_a_workgroup
    return waves * work.wave_bytes * loop.lds_bytes / loop.load_bytes if loop is not None else 0.0


@dataclass(frozen=True, slots=True)
class Alike:
    """Dispatches of one kernel, one grid and one limit, together."""

    each: Sequence[Ceiling]

    @property
    def first(self) -> Ceiling:
        return self.each[0]

    @property
    def lost(self) -> float:
        return sum(one.lost for one in self.each)


def by_time_lost(ceilings: Iterable[Ceiling]) -> list[Alike]:
    """Group identical dispatches, also by opcode, sorted by lost time."""
    groups: dict[tuple[object, ...], list[Ceiling]] = {}
    for each in ceilings:
        work = each.work
        key = work.kernel, work.op, work.grid, work.read_bytes, work.written_bytes, work.behind_barrier, each.limit
        groups.setdefault(key, []).append(each)
    return sorted(map(Alike, groups.values()), key=lambda group: -group.lost)
