"""The time of one dispatch on a device, from its counts: the largest of its limits, after its launch.

| limit | time |
|---|---|
| memory | bytes of memory, each once, at `read_efficiency` of the specified bandwidth |
| cache | bytes that waves load, from memory or a cache, at `cache_bytes_a_clock` of the compute units in use |
| latency | rounds of waves, each with one latency for every wait (Little's law) |
| tail | the last round, which has fewer workgroups |
| issue | instructions at `issue_share` of the slots of the SIMDs in use |
| flops | float32 operations at `issue_share` of the specified rate of the compute units in use |
| matrix | operations of WMMA and dot instructions by type, likewise |
| lds | bytes moved through LDS at `lds_bytes_a_clock` |
| launch | its packet, and the barrier before it, if any |

A grid smaller than the device uses fewer compute units and has fewer bytes in flight, so it is charged by cache,
latency, issue, flops, matrix and lds. `read_efficiency` and `issue_share` are below 1, so no time is shorter than
that of the specified bandwidth or of the specified operations per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from zinc_rt.host.devices import SIMDS_A_CU, DeviceRow

Limit = Literal["memory", "cache", "latency", "tail", "issue", "flops", "matrix", "lds", "launch"]
LIMITS: tuple[Limit, ...] = get_args(Limit)
ASSUMPTIONS = (
    "read_efficiency", "issue_share", "memory_latency_ns", "cache_latency_ns", "cache_bytes_a_clock",
    "lds_bytes_a_clock", "dispatch_us", "barrier_us",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DispatchCounts:
    """The counts of one dispatch. `moved_bytes` are read or written in memory, each once; the other sums are over
    all its waves. `waves_a_simd` is the occupancy that registers and LDS allow. `in_flight_loads` and
    `in_flight_bytes` are a wave's pending loads at most. `matrix_ops` are by type of input: f16, bf16, iu8, dot.
    """

    workgroups: int
    waves_a_workgroup: int
    waves_a_simd: int
    read_bytes: float
    moved_bytes: float
    load_bytes: float
    in_flight_loads: int
    in_flight_bytes: float
    issued: float
    lds_bytes: float = 0.0
    vector_flops: float = 0.0
    matrix_ops: Mapping[str, float] = field(default_factory=dict)
    behind_barrier: bool = False

    @property
    def waves(self) -> int:
        return self.workgroups * self.waves_a_workgroup


@dataclass(frozen=True)
class DispatchCost:
    """The limits of one dispatch, in seconds. `latency` is the time of all its rounds of one wave; `tail` the time
    of the last of several rounds beyond its share of memory's time; `running` its time without `launch`. `ideal`
    is the time of its bytes at the specified bandwidth.
    """

    rounds: int
    resident_waves: int
    in_flight_bytes: float
    memory: float
    cache: float
    latency: float
    tail: float
    issue: float
    flops: float
    matrix: float
    lds: float
    running: float
    dispatch: float
    barrier: float
    ideal: float

    @property
    def launch(self) -> float:
        return self.dispatch + self.barrier

    @property
    def seconds(self) -> float:
        return self.running + self.launch

    @property
    def lost(self) -> float:
        """Return the time in excess of its bytes at the specified bandwidth."""
        return self.seconds - self.ideal

    @property
    def bandwidth_share(self) -> float:
        """Return the fraction of the specified bandwidth that it uses while it runs."""
        return self.ideal / self.running if self.running else 0.0

    @cached_property
    def limit(self) -> Limit:
        """Return the limit that takes most of its time."""
        return max(LIMITS, key=lambda name: (float(getattr(self, name)), -LIMITS.index(name)))

    @cached_property
    def running_limit(self) -> Limit:
        """Return the limit that takes most of its time after its launch."""
        return max(LIMITS[:-1], key=lambda name: (float(getattr(self, name)), -LIMITS.index(name)))


def compute_cost(counts: DispatchCounts, device: DeviceRow, assumed: Mapping[str, float]) -> DispatchCost:
    """Return the cost of a dispatch. `assumed` has a value for each of ASSUMPTIONS."""
    simds = device.compute_units * SIMDS_A_CU
    slots = max(1, simds * counts.waves_a_simd // counts.waves_a_workgroup)  # workgroups resident at the same time
    full, left = divmod(counts.workgroups, slots)
    resident = min(counts.workgroups, slots) * counts.waves_a_workgroup
    peak = device.memory_gbps * 1e9
    memory = counts.moved_bytes / (peak * assumed["read_efficiency"])
    wave_bytes = counts.load_bytes / max(1, counts.waves)
    pending = min(wave_bytes, counts.in_flight_bytes)
    turns = wave_bytes / pending if pending else 0.0
    alone = turns * _compute_latency(counts, wave_bytes, assumed)  # of one wave, waiting
    a_round, last = (memory * part / counts.workgroups for part in (slots, left))
    tail = alone - last if full and 0 < last < alone < a_round else 0.0
    streamed = full * max(a_round, alone) + (max(last, alone) if left else 0.0)
    busy = min(1.0, counts.waves / simds)  # the share of SIMDs that have a wave
    clock_hz = device.clock_mhz * 1e6 * busy  # of the compute units in use
    share, units = assumed["issue_share"], device.compute_units * clock_hz
    parts = {
        "cache": counts.load_bytes / (units * assumed["cache_bytes_a_clock"]),
        "issue": counts.issued / (device.issues_a_second * busy * share),
        "flops": counts.vector_flops / (units * device.ops_a_clock["f32"] * share),
        "matrix": sum(ops / (units * device.ops_a_clock[kind] * share) for kind, ops in counts.matrix_ops.items()),
        "lds": counts.lds_bytes / (units * assumed["lds_bytes_a_clock"]),
    }
    return DispatchCost(
        rounds=full + bool(left),
        resident_waves=resident,
        in_flight_bytes=resident * pending,
        memory=memory,
        latency=(full + bool(left)) * alone,
        tail=tail,
        **parts,
        running=max(streamed, *parts.values()),
        dispatch=assumed["dispatch_us"] * 1e-6,
        barrier=assumed["barrier_us"] * 1e-6 if counts.behind_barrier else 0.0,
        ideal=counts.moved_bytes / peak,
    )


def _compute_latency(counts: DispatchCounts, wave_bytes: float, assumed: Mapping[str, float]) -> float:
    """Return the seconds of one wait: the memory latency if one of its loads goes to memory. Bytes that waves load
    beyond the dispatch's memory bytes come from a cache.
    """
    loaded = counts.waves * wave_bytes
    missing = min(1.0, counts.read_bytes / loaded) if loaded else 0.0
    to_memory = 1 - (1 - missing) ** counts.in_flight_loads
    cached = assumed["cache_latency_ns"]
    return (cached + to_memory * (assumed["memory_latency_ns"] - cached)) * 1e-9


@dataclass(frozen=True, slots=True)
class StepBounds:
    """The minimum seconds of a step on a device: its bytes at the specified bandwidth, and its operations at the
    specified rates. Caches are not taken into account: data that fits in them may be read faster.
    """

    bytes: float
    flops: float

    @property
    def seconds(self) -> float:
        return max(self.bytes, self.flops)


def compute_bounds(dispatches: list[DispatchCounts], device: DeviceRow) -> StepBounds:
    """Return the bounds of a step of these dispatches."""
    clock_hz = device.compute_units * device.clock_mhz * 1e6
    flops = sum(
        dispatch.vector_flops / device.ops_a_clock["f32"]
        + sum(ops / device.ops_a_clock[kind] for kind, ops in dispatch.matrix_ops.items())
        for dispatch in dispatches
    )
    return StepBounds(
        sum(dispatch.moved_bytes for dispatch in dispatches) / (device.memory_gbps * 1e9), flops / clock_hz
    )
