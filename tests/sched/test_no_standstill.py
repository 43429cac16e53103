"""Scarce pages and few slots: whoever holds what others wait for goes on. The simulation found each of these."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.sched.arrival import Arrival
from zinc_rt.sched.pages import PageQuota
from zinc_rt.sched.schedule_checks import of_every_run
from zinc_rt.sched.simulate import SimulationSettings, simulate
from zinc_rt.sched.step_cost import StepCost
from zinc_rt.sched.tenant import Priority, Tenant

CLOCK = StepCost("a clock", "none", step_us=20_000, token_us=10, context_us=0, source="this test")


def everything_ends(tenants: list[Tenant], arrivals: list[Arrival], slots: int, pages: int) -> None:
    settings = SimulationSettings(slots, 1024, pages, interactive_step_tokens=64, check_every=1, most_steps=None)
    seen = simulate(arrivals, tenants, settings, CLOCK)
    assert [each for each in of_every_run(seen) if each.status != "pass"] == []


def test_a_parked_one_passes_the_head_of_its_tenant_that_waits_for_its_pages() -> None:
    """One slot. The long ones are parked with their pages; prompts that need these have aged to the head."""
    tenants = [Tenant("a"), Tenant("b")]
    arrivals = [Arrival(0.1 * n, "ab"[n % 2], 60, 140) for n in range(4)]
    arrivals += [Arrival(1 + 0.1 * n, "ab"[n % 2], 150, 5) for n in range(4)]
    everything_ends(tenants, arrivals, 1, 30)


def test_who_cannot_go_on_without_a_page_gives_the_slot_to_who_can() -> None:
    """The one slot is guaranteed to a batch tenant, whose next page an interactive request holds."""
    tenants = [Tenant("night", Priority.BATCH, slots_guaranteed=1), Tenant("desk", Priority.INTERACTIVE)]
    arrivals = [Arrival(0, "desk", 200, 60), Arrival(0.1, "night", 100, 60), Arrival(0.2, "desk", 100, 5)]
    everything_ends(tenants, arrivals, 1, 20)


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_of_quotas_and_scarcity(seed: int) -> None:
    random = np.random.default_rng(seed)
    slots, pages, count = int(random.integers(1, 6)), int(random.integers(40, 90)), int(random.integers(2, 7))
    tenants = [
        Tenant(
            f"t{number}",
            Priority(int(random.integers(0, 3))),
            float(random.choice([0.25, 1, 3])),
            slots_guaranteed=int(number < slots and random.random() < 0.3),
            pages=(PageQuota(int(random.integers(0, pages // count))),),
        )
        for number in range(count)
    ]
    arrivals = [
        Arrival(
            float(at),
            f"t{random.integers(count)}",
            int(random.integers(1, 200)),
            int(random.integers(1, 120)),
            prefix=f"{random.integers(4)}" if random.random() < 0.3 else "",
        )
        for at in np.cumsum(random.exponential(0.05, 40))
    ]
    everything_ends(tenants, arrivals, slots, pages)
