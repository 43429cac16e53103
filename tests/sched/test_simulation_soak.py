"""Many short requests in virtual time: no page, slot, row or byte is lost."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from support import Counts

from zinc_rt.sched.request import Request
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.schedule_checks import run_common_checks
from zinc_rt.sched.simulation.simulate import Simulation, SimulationSettings
from zinc_rt.sched.step_cost import StepCost
from zinc_rt.sched.tenant import Priority, Tenant

pytestmark = pytest.mark.rest

QUICK_CARD = StepCost(
    "none", "none", step_us=1000, prompt_us=10, decode_us=10, context_us=0.01, source="this test"
)
TENANTS = (
    Tenant("desk", Priority.INTERACTIVE),
    *(Tenant(f"team-{n}") for n in range(6)),
    Tenant("night", Priority.BATCH),
)
SLOTS, PAGES, RATE = 16, 100, 600
MOST_GROWN = 96 << 20  # the log keeps 5 bytes a token: 50 MB of a million requests in that part of the run


def random_traffic(random: np.random.Generator, count: int) -> list[Arrival]:
    """A load slightly above the capacity of the slots at times, and slightly below it on average."""
    ats = np.cumsum(random.exponential(1 / RATE, count) * (1 + 0.5 * np.sin(np.arange(count) / 500)))
    tenants, prompts = random.integers(0, len(TENANTS), count), random.integers(1, 60, count)
    outputs, texts = random_answers(random, count), random.integers(0, 40, count)
    return [
        Arrival(index, TENANTS[tenant].name, prompt, output, prefix=f"{text % 4}" if text < 20 else "")
        for index, tenant, prompt, output, text in zip(
            ats.tolist(), tenants.tolist(), prompts.tolist(), outputs.tolist(), texts.tolist(), strict=True
        )
    ]


def random_answers(random: np.random.Generator, count: int) -> np.ndarray:
    """Most requests are short; one in ten is too long for its reserved pages."""
    return np.where(random.random(count) < 0.1, random.integers(60, 200, count), random.integers(1, 8, count))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_long_simulation_completes_every_request(slow_counts: Counts) -> None:
    count = slow_counts(2000, 1_000_000)
    ended, sizes = 0, {}

    def record_memory(requests: int) -> None:
        nonlocal ended
        ended += requests
        sizes.setdefault(10 * ended // count, resident_bytes())

    settings = SimulationSettings(SLOTS, 1024, PAGES, check_every=slow_counts(10, 2000))
    simulation = Simulation(
        random_traffic(np.random.default_rng(1), count), TENANTS, settings, QUICK_CARD, record_memory
    )
    seen = simulation.run()
    assert [finding for finding in run_common_checks(seen) if finding.status != "pass"] == []
    assert (
        ended == count
        and min(seen.counts.parked, seen.counts.evicted) > count // 1000
        and seen.log.compute_hit_share() > 0.05
    )
    grown = sizes[9] - sizes[3]
    assert grown < MOST_GROWN, f"{grown:,} bytes more resident after nine tenths than after three"
    gc.collect()
    left = [item for item in gc.get_objects() if isinstance(item, Request)]
    assert len(left) <= 64  # queues drop who left when he comes to the head, and sweep where there are more
