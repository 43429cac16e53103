"""V10 to V13: execution order, arguments, grids, barriers, shared memory, timelines."""

from __future__ import annotations

import time

import numpy as np

from zinc_rt.probes.outcome import VULKAN, Outcome, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.bench import Indirect, VulkanBench, chain_commands
from zinc_rt.probes.vulkan.context import VulkanProbeContext
from zinc_rt.probes.vulkan.timeline import ProbeTimeline

GRIDS = ((0, 1, 1), (1, 0, 1), (1, 1, 1), (7, 3, 2), (65535, 1, 1))
HOPS, CELLS = 1000, 1 << 12
VALUES = 1000
DEADLINE_SECONDS = 0.05


@probe("V10", "push constants and grids", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    "push constants reach every dispatch, and a grid may be in memory, including 0, or written by a kernel",
    passes_when=(
        "each workgroup ran exactly once, for direct grids, grids in memory, and grids written by a dispatch"
    ),
)
@fails(
    symptom("wrong-grid"),
    "a grid in memory is read too early or from the wrong address, or a count of 0 runs workgroups",
    "update the driver; report this with --json",
)
def probe_grids(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    for grid in GRIDS:
        wide, high, deep = (max(1, axis) for axis in grid)
        in_memory = Indirect(bench.of(np.array((9, 9, 9, *grid), np.uint32)), 12)
        written = Indirect(bench.words(3, fill=0))
        for how, places in (("direct", grid), ("in memory", in_memory), ("written by a dispatch", written)):
            marks = bench.words(wide * high * deep)
            parts = [bench.dispatch("probe_mark", (marks, wide, high), places)]
            if places is written:
                parts.insert(0, bench.dispatch("probe_grid", (written.memory, *grid), (1, 1, 1)))
            bench.run(chain_commands(parts))
            want = 1 if all(grid) else 0
            wrong = int(np.count_nonzero(marks.words != want))
            check(
                not wrong, "wrong-grid", f"{grid} {how}: {wrong} of {marks.words.size} workgroups did not run once"
            )
            bench.memory.give_back(marks.block)
    return passed(grids=len(GRIDS), largest=65535)


@probe("V11", "barrier", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    "a barrier makes the writes of a dispatch visible to the next",
    passes_when=f"{HOPS} dispatches, each reading data of other workgroups of the previous one, count to {HOPS}",
)
@fails(
    symptom("stale"),
    "a dispatch started before the one preceding the barrier had ended, or read a stale cache line",
    "update the driver; report this with --json",
)
def probe_barrier(c: VulkanProbeContext) -> Outcome:
    apart, together = (run_hops(c.bench, barriers=barriers) for barriers in (True, False))
    wrong = int(np.count_nonzero(apart != HOPS))
    check(not wrong, "stale", f"{wrong} of {CELLS} cells are not {HOPS}; one is {apart[apart != HOPS][:1]}")
    race = int(np.count_nonzero(together != HOPS))
    seen = f"without barriers {race} cells are wrong" if race else "no race is observed without barriers"
    return passed(seen, dispatches=HOPS, raced_cells=race)


def run_hops(bench: VulkanBench, *, barriers: bool) -> np.ndarray:
    """Return the cells after HOPS dispatches between two buffers."""
    pair = bench.words(CELLS), bench.words(CELLS)
    there, back = (
        bench.dispatch("probe_next", (pair[i], pair[1 - i], CELLS), (CELLS // 32, 1, 1)) for i in (0, 1)
    )
    parts = [there, back] * (HOPS // 2)
    bench.run(chain_commands(parts) if barriers else (item for part in parts for item in part))
    return pair[0].words.copy()


@probe("V12", "shared memory", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    "barrier() inside a workgroup of 128 orders shared memory",
    passes_when="reduction trees of every size up to 128 are correct",
)
@fails(
    symptom("wrong-sum"),
    "invocations of a workgroup pass barrier() early, or its shared memory is shared with another workgroup",
    "update the driver; report this with --json",
)
def probe_shared_memory(c: VulkanProbeContext) -> Outcome:
    x = np.random.default_rng(12).integers(0, 1 << 32, 128, np.uint64).astype(np.uint32)
    y = c.bench.words(128)
    c.bench.run(c.bench.dispatch("probe_shared", (c.bench.of(x), y), (1, 1, 1)))
    wrong = np.flatnonzero(y.words != np.cumsum(x, dtype=np.uint32))
    check(not wrong.size, "wrong-sum", f"sums of {wrong.size} sizes are wrong, first {wrong[:1] + 1}")
    return passed(sizes=128)


@probe("V13", "timeline", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    "a timeline semaphore counts, supports waits before its signal, and respects deadlines",
    passes_when=(
        f"{VALUES} values arrive in order; work waits for the host; a wait past its deadline returns a timeout"
    ),
)
@fails(
    symptom("order"),
    "submissions of one queue end out of order, or the semaphore loses values",
    "update the driver; report this with --json",
)
@fails(
    symptom("early"),
    "work started before its wait semaphore was signalled",
    "update the driver; report this with --json",
)
@fails(
    symptom("late"),
    "a wait returned long after its deadline, or not at all",
    "the machine may be busy: run it again; otherwise update the driver",
)
def probe_timeline(c: VulkanProbeContext) -> Outcome:
    result, gate = ProbeTimeline(c.device), ProbeTimeline(c.device)
    for value in range(1, VALUES + 1):
        result.submit(value)
    check(result.wait(VALUES, 10.0), "order", f"value {VALUES} was not reached after 10 s, but {result.value()}")
    check(result.value() == VALUES, "order", f"the semaphore says {result.value()} after {VALUES}")
    result.submit(VALUES + 1, after=(gate, 7))
    start = time.perf_counter()
    early = result.wait(VALUES + 1, DEADLINE_SECONDS)
    waited = time.perf_counter() - start
    gate.signal(7)  # before anything may raise: what waits would keep the device
    check(
        result.wait(VALUES + 1, 10.0),
        "order",
        "work that waited for the host's value did not run after the signal",
    )
    check(not early, "early", "work that waits for a value ran before the signal")
    check(waited < DEADLINE_SECONDS + 2.0, "late", f"a wait of {DEADLINE_SECONDS} s took {waited:.2f} s")
    gate.close()
    result.close()
    return passed(values=VALUES, deadline_over_ms=1000 * (waited - DEADLINE_SECONDS))
