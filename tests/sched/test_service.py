"""Whatever two tenants send, while both have prompts to compute they are given as much: the four workloads on
which the virtual token counter was shown (Sheng et al., OSDI 2024), as prompts that fill every step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fake_runner import FakeRunner

from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Tenant

STEP, STEPS = 128, 1200
Arrivals = Callable[[int, random.Random], tuple[list[int], list[int]]]  # step -> prompts of each tenant


def overload_arrivals(step: int, choice: random.Random) -> tuple[list[int], list[int]]:
    """The second tenant sends twice as much as the first; both send more than half of the capacity."""
    return ([120] if step % 2 == 0 else [], [120])


def on_off_arrivals(step: int, choice: random.Random) -> tuple[list[int], list[int]]:
    """The first tenant sends in bursts and is idle in between."""
    return ([200] if step % 400 < 200 else [], [150])


def short_and_long_arrivals(step: int, choice: random.Random) -> tuple[list[int], list[int]]:
    """Random arrivals: many short requests, few long ones."""
    return ([24 for _ in range(4) if choice.random() < 0.9], [600] if choice.random() < 0.2 else [])


def shifting_arrivals(step: int, choice: random.Random) -> tuple[list[int], list[int]]:
    """The first tenant has the heavier load, then the second."""
    heavy, light = [200], [100] if step % 2 else []
    return (heavy, light) if step < STEPS // 2 else (light, heavy)


@pytest.mark.parametrize(
    "arrivals", [overload_arrivals, on_off_arrivals, short_and_long_arrivals, shifting_arrivals]
)
@pytest.mark.rest(keep=1)
def test_busy_tenants_receive_equal_service(arrivals: Arrivals) -> None:
    now, choice, number = 0, random.Random(5), 0
    cache, runner = KvCache((PageGroup("full", 4096),), 16, STEP), FakeRunner()
    limits = SchedulerLimits(16, 1024, STEP, check_every=0)
    scheduler = runner.scheduler = Scheduler(limits, [Tenant("a"), Tenant("b")], cache, runner, lambda: now)
    spaces = [make_namespace("m", "canonical-1", "f32", 16) for _ in range(2)]
    apart_since: float | None = None  # the difference when both became busy
    widest, together = 0.0, 0
    for step in range(STEPS):
        now += 20_000_000
        for tenant, prompts in enumerate(arrivals(step, choice)):
            for length in prompts if scheduler.queues.waiting(tenant) < 40 else ():
                number += 1
                tokens = [number * 31 % 1009, *range(length - 1)]
                scheduler.submit(NewRequest(number, tenant, tokens, spaces[tenant], Sampling(1, seed=1)))
        scheduler.step()
        busy = {request.tenant for request in scheduler.prefilling}
        difference = scheduler.service.to_tokens(0) - scheduler.service.to_tokens(1)
        if len(busy) < 2:
            apart_since = None
            continue
        apart_since = difference if apart_since is None else apart_since
        widest, together = max(widest, abs(difference - apart_since)), together + 1
    assert together > STEPS // 4, "they were never busy at once"
    assert widest <= 2 * STEP, f"{widest} tokens apart, in steps of {STEP}"
