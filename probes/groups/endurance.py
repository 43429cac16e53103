"""P56: latency and endurance."""

from __future__ import annotations

import random
import time
from typing import Any

from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AtomicMem, CopyData, DmaData, EventWrite, Nop, WriteData
from zinc_rt.probes.groups.cp_basic import FAULTED, NOT_FETCHED
from zinc_rt.probes.kit.context import ProbeContext, wait_until
from zinc_rt.probes.kit.mapped_buffer import find_first_difference, make_pattern
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.outcome import T1, T2, Outcome, check, match_message, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

FENCES = 10_000
SIMULATED_FENCES = 4_000  # enough for a trend where a busy host is all there is to measure
WARM_UP = 200
TREND_LIMIT = 5.0  # the last tenth's median over the first tenth's
SUSPEND_SECONDS = 120.0
MIXED_BYTES = 4096


@probe(
    "P56",
    "latency and soak",
    (T1, T2),
    hazard=1,
    needs=("P21", "P24", "P25", "P29"),
    seconds=120.0,
    more_seconds=lambda o: 60 * o.soak_minutes + (SUSPEND_SECONDS + 60 if o.manual else 0),
)
@proves(
    "fences stay fast, results stay correct, nothing leaks",
    passes_when=f"{FENCES} fences without a trend; with --soak mixed packets, each checked; the same resources "
    "afterwards",
)
@fails(
    symptom("rising"),
    "clocks fall or events get lost: power state, temperature, a busy host",
    "`echo high > /sys/class/drm/card*/device/power_dpm_force_performance_level`, then run it again",
)
@fails(symptom("leak"), "a resource is not released", "please report it, with the --bundle folder")
@fails(
    match_message("after resume"),
    "the queue did not survive the suspend (T2 does not guarantee it)",
    "reopen the device after resume",
)
@fails_like(FAULTED, NOT_FETCHED)
def probe_latency(c: ProbeContext) -> Outcome:
    queue = c.queue()
    before = c.transport.resources()
    ready = queue.ring.encode([Nop()], "fence")
    micros = []
    count = SIMULATED_FENCES if c.driver.simulated else FENCES
    for number in range(WARM_UP + count):
        start = time.perf_counter()
        fence = queue.ring.submit(ready)
        fence.wait(c.poll_seconds)
        if number >= WARM_UP:
            micros.append((time.perf_counter() - start) * 1e6)
    measure: dict[str, Any] = {"fences": count, **_summarise_times(micros)}
    tenth = count // 10
    trend = _compute_median(micros[-tenth:]) / _compute_median(micros[:tenth])
    measure["trend"] = round(trend, 2)
    check(
        trend < TREND_LIMIT,
        "rising",
        f"latency rises {trend:.1f}-fold between the first and the last tenth",
        measure=measure,
        limit={"trend": TREND_LIMIT},
    )
    if c.options.soak_minutes:
        measure["mixed_rounds"] = _run_soak(c, queue, c.options.soak_minutes * 60)
    notes = [] if not c.options.manual else [_test_suspend(c, queue)]
    after = c.transport.resources()
    check(after == before, "leak", f"held before {before}, afterwards {after}")
    return passed(*notes, **measure)


def _summarise_times(micros: list[float]) -> dict[str, float]:
    ordered = sorted(micros)
    return {
        "p50_us": round(ordered[len(ordered) // 2], 1),
        "p99_us": round(ordered[len(ordered) * 99 // 100], 1),
        "max_us": round(ordered[-1], 1),
    }


def _compute_median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _run_soak(c: ProbeContext, queue: ProbeQueue, seconds: float) -> int:
    """Run mixed packets and check every result; a buffer is allocated and freed in each round."""
    dice = random.Random(56)
    end, rounds = time.monotonic() + seconds, 0
    source = c.memory(MIXED_BYTES, "soak source")
    index = queue.memory.gpu_va + FREE_AT
    while time.monotonic() < end:
        rounds += 1
        target = c.memory(MIXED_BYTES, "soak target", dice.choice((Placement.GTT, Placement.GTT_CACHED)))
        want = make_pattern(MIXED_BYTES, rounds)
        source.put(0, want)
        queue.memory.put64(FREE_AT, 0)
        packets: list[Packet] = [
            DmaData(source.gpu_va, target.gpu_va, MIXED_BYTES),
            WriteData(index + 16, (rounds & 0xFFFFFFFF,), wr_confirm=1),
            CopyData(index + 16, index + 24, wr_confirm=1),
            *[AtomicMem(index, 3, 15 + 64) for _ in range(dice.randrange(1, 8))],
            EventWrite.cs_partial_flush(),
            Nop((0,) * dice.randrange(1, 64)),
        ]
        atomics = sum(isinstance(packet, AtomicMem) for packet in packets)
        queue.finish(packets, f"round {rounds}")
        check(
            find_first_difference(target.read(0, MIXED_BYTES), want) is None, "wrong-data", f"round {rounds}: copy"
        )
        check(queue.memory.u32(FREE_AT + 24) == rounds & 0xFFFFFFFF, "wrong-data", f"round {rounds}: COPY_DATA")
        check(queue.memory.u32(FREE_AT) == 3 * atomics, "wrong-data", f"round {rounds}: atomics")
        target.free()
    source.free()
    return rounds


def _read_suspended_seconds() -> float:
    """Return the time for which this machine has been suspended since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def _test_suspend(c: ProbeContext, queue: ProbeQueue) -> str:
    before = _read_suspended_seconds()
    print(f"P56: suspend this machine now and wake it up again (waiting {SUSPEND_SECONDS:g} s)", flush=True)
    if not wait_until(lambda: _read_suspended_seconds() > before + 1, SUSPEND_SECONDS, 0.5):
        return "the machine was not suspended: this part was not tested"
    queue.finish([Nop()], "after resume", seconds=10.0)
    return f"survived a suspend of {_read_suspended_seconds() - before:.0f} s"
