"""Scarce pages and few slots: whoever holds what others wait for goes on, whatever the quotas and classes are."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from support import Counts

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.schedule_checks import run_common_checks
from zinc_rt.sched.simulation.simulate import SimulationSettings, simulate
from zinc_rt.sched.step_cost import StepCost
from zinc_rt.sched.tenant import Priority, Tenant

pytestmark = pytest.mark.rest

CLOCK = StepCost("a clock", "none", step_us=20_000, prompt_us=10, decode_us=10, context_us=0, source="this test")
# Once every slot was empty for ever with these: parked requests stood behind heads that waited for their pages.
STOOD_STILL = (37, 107)


def random_case(seed: int) -> tuple[list[Tenant], list[Arrival], int, int]:
    """Tenants, arrivals, slots, pages."""
    random = np.random.default_rng(seed)
    slots, pages, count = int(random.integers(1, 4)), int(random.integers(30, 60)), int(random.integers(2, 7))
    tenants = [
        Tenant(
            f"t{number}",
            Priority(int(random.integers(0, 3))),
            float(random.choice([0.25, 1, 3])),
            slots_guaranteed=int(number == 0 and random.random() < 0.3),
            pages=(PageQuota(int(random.integers(0, pages // count // 2 + 1))),),
        )
        for number in range(count)
    ]
    arrivals = [
        Arrival(
            float(at),
            f"t{random.integers(count)}",
            int(random.integers(1, 170)),
            int(random.integers(1, 150)),
        )
        for at in np.cumsum(random.exponential(0.05, 40))
    ]
    return tenants, arrivals, slots, pages


def assert_everything_ends(seed: int) -> None:
    tenants, arrivals, slots, pages = random_case(seed)
    settings = SimulationSettings(slots, 1024, pages, check_every=8)
    seen = simulate(arrivals, tenants, settings, CLOCK)
    assert [outcome for outcome in run_common_checks(seen) if outcome.status != "pass"] == []


@pytest.mark.parametrize("seed", STOOD_STILL)
def test_known_standstill_seeds_finish(seed: int) -> None:
    assert_everything_ends(seed)


def test_random_quotas_and_scarcity_finish(slow_counts: Counts) -> None:
    for seed in range(200, 200 + slow_counts(2, 300)):
        with suppress(UsageError):  # one of its requests could never run: the quotas are drawn as well
            assert_everything_ends(seed)
