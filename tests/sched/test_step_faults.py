"""What goes wrong in a step, each with its outcome: who recovers with the tokens they would have had alone, who
fails, and that nobody else is touched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zinc_rt.exec import DeadlineMissed
from zinc_rt.sched.checks.shadow import ShadowDevice, draw_token
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.request import NewRequest
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.sched.usage.ledger import RunnerCounts

PAGE, SLOTS, CTX = 4, 4, 64
TENANTS = (
    Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1),
    Tenant("team"),
    Tenant("night", Priority.BATCH),
)


class FaultyDevice:
    """A shadow device that fails on demand. `fails(step, requests)`: whether a step with these requests fails;
    `late`: only when it is waited for. `poison`: (request, position) with NaN logits.
    """

    def __init__(self) -> None:
        self.shadow: ShadowDevice | None = None
        self.fails: Callable[[int, set[int]], bool] = lambda step, requests: False
        self.late = True
        self.reopens = True
        self.poison: set[tuple[int, int]] = set()
        self.steps = self.reopened = 0
        self.records = np.empty(0)

    @property
    def counts(self) -> RunnerCounts:
        return RunnerCounts() if self.shadow is None else self.shadow.counts

    def attach(self, scheduler: Scheduler) -> None:
        cache = scheduler.cache
        self.records = scheduler.records
        self.shadow = ShadowDevice(SLOTS, CTX, PAGE, cache.groups, cache.state_rows, scheduler.records)

    def submit(self, plan: StepPlan) -> object:
        assert self.shadow is not None
        self.steps += 1
        requests = set(self.records["request"][plan.slot[: plan.tokens]].tolist())
        bad = self.fails(self.steps, requests)
        if bad and not self.late:
            raise RuntimeError("the ring is full")
        return self.shadow.submit(plan), bad

    def collect(self, handle: Any) -> Drawn:
        assert self.shadow is not None
        plan, bad = handle
        if bad:
            raise DeadlineMissed("a step did not finish")
        drawn = self.shadow.collect(plan)
        for row in range(plan.rows):
            who = int(self.records["request"][plan.row_slot[row]]), int(plan.row_position[row])
            drawn.nonfinite[row] = 7 if who in self.poison else -1
        return drawn

    def reopen(self) -> bool:
        assert self.shadow is not None
        self.reopened += 1
        return self.reopens and self.shadow.reopen()


class FaultBench:
    """A scheduler with a faulty device. `got`: tokens delivered by (request, choice); `ended`: how they ended."""

    def __init__(self, *, pages: int = 40, rows: int = 12) -> None:
        self.now = 0
        self.device = FaultyDevice()
        groups = (PageGroup("full", pages), PageGroup("window", pages, window=6))
        self.cache = KvCache(groups, PAGE, 12, rows)
        limits = SchedulerLimits(SLOTS, CTX, step_tokens=12, slice_tokens=4, check_every=0)
        self.scheduler = Scheduler(limits, TENANTS, self.cache, self.device, lambda: self.now)
        self.device.attach(self.scheduler)
        self.spaces = [make_namespace("m", "c", "f32", PAGE, secret=bytes([n]) * 32) for n in range(len(TENANTS))]
        self.got: dict[tuple[int, int], list[int]] = {}
        self.ended: dict[tuple[int, int], str] = {}
        self.asked: dict[int, tuple[int, Sampling]] = {}

    def submit(
        self, number: int, *, prompt: int = 9, limit: int = 8, tenant: int = 1, n: int = 1, **more: Any
    ) -> None:
        tokens = [(number * 31 + index * 7) % 1000 for index in range(prompt)]
        sampling = Sampling(max_tokens=limit, seed=number, n=n, ignore_eos=True)
        assert self.device.shadow is not None
        self.device.shadow.register_request(number, tokens, start=tenant, choices=n)
        self.asked[number] = prompt, sampling
        self.scheduler.submit(NewRequest(number, tenant, tokens, self.spaces[tenant], sampling, **more))

    def step(self) -> bool:
        self.now += 10_000_000
        batch = self.scheduler.step()
        assert not self.scheduler.check()
        assert self.device.shadow is not None and not self.device.shadow.findings, self.device.shadow.findings
        if batch is None:
            return False
        for number, choice, token in zip(
            batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True
        ):
            self.got.setdefault((number, choice), []).append(token)
        for number, choice, reason in batch.ended:
            assert (number, choice) not in self.ended
            self.ended[number, choice] = reason
        return True

    def drain(self, maximum: int = 2000) -> None:
        for _ in range(maximum):
            self.step()
            if not self.scheduler.live:
                break
        assert not self.scheduler.live
        for pool in self.cache.pools:
            assert pool.pool.used == 0
        assert self.cache.rows is None or self.cache.rows.used == 0
        assert sorted(self.scheduler.slots.free) == list(range(SLOTS))

    def check_complete(self, number: int) -> None:
        """Check that it received every token of its solo run exactly once."""
        prompt, sampling = self.asked[number]
        for choice in range(sampling.n):
            drawn_tokens = [draw_token(number, choice, prompt + index) for index in range(sampling.max_tokens)]
            assert self.got[number, choice] == drawn_tokens, (number, choice)
            assert self.ended[number, choice] == "length"


@pytest.mark.parametrize("late", [False, True], ids=["as it is submitted", "as it is waited for"])
@pytest.mark.parametrize("moment", [1, 2, 5, 9])
def test_failed_step_costs_time_but_no_token(late: bool, moment: int) -> None:
    house = FaultBench()
    house.device.late, house.device.fails = late, lambda step, requests: step == moment
    for number in range(1, 8):
        house.submit(number, tenant=number % 3, prompt=3 + 4 * number, n=1 + number % 2)
    house.drain()
    assert house.device.reopened == 1 and house.scheduler.counts.failed_steps == 1
    for number in range(1, 8):
        house.check_complete(number)


def test_lost_device_fails_every_request_with_reason() -> None:
    house = FaultBench()
    house.device.fails, house.device.reopens = lambda step, requests: step == 4, False
    for number in range(1, 9):
        house.submit(number, tenant=number % 3)
    with pytest.raises(DeadlineMissed, match="did not finish"):
        house.drain()
    batch = house.scheduler.step()
    assert batch is not None
    ended = {number: reason for number, _, reason in batch.ended}
    assert ended == dict.fromkeys(set(range(1, 9)) - {number for number, _ in house.ended}, "device_lost")
    assert not house.scheduler.live and not house.scheduler.check()


def test_request_that_hangs_the_device_fails_alone() -> None:
    house = FaultBench()
    house.device.fails = lambda step, requests: 3 in requests
    for number in range(1, 8):
        house.submit(number, tenant=number % 3)
    house.drain()
    assert house.ended[3, 0] == "device_hang" and not house.got.get((3, 0))
    for number in {1, 2, 4, 5, 6, 7}:
        house.check_complete(number)
    assert house.device.reopened <= 4, "two steps beside others, then one alone"


def test_nan_logits_fail_one_request() -> None:
    house = FaultBench()
    house.device.poison = {(2, 9 + 3), (5, 9)}
    for number in range(1, 7):
        house.submit(number)
    house.drain()
    assert house.ended[2, 0] == house.ended[5, 0] == "logits_not_finite"
    assert len(house.got[2, 0]) == 3 and (5, 0) not in house.got, "what was drawn of them is nobody's"
    for number in (1, 3, 4, 6):
        house.check_complete(number)


def test_failed_request_leaves_nothing_in_the_cache() -> None:
    house = FaultBench()
    house.device.poison = {(1, 20)}
    house.submit(1, prompt=20)
    house.drain()
    assert house.ended[1, 0] == "logits_not_finite"
    house.device.poison.clear()
    assert house.device.shadow is not None
    house.device.shadow.forget(1)
    house.asked.clear()
    house.got.clear(), house.ended.clear()
    house.submit(1, prompt=20)
    house.drain()
    house.check_complete(1)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("pages", "rows"), [(18, 30), (60, 6), (18, 6)], ids=["pages", "rows", "both"])
def test_request_waits_for_exhausted_pages_and_rows(pages: int, rows: int) -> None:
    house = FaultBench(pages=pages, rows=rows)
    for number in range(1, 13):
        house.submit(number, tenant=number % 3, prompt=5 + 3 * number, limit=12)
    house.drain(8000)
    for number in range(1, 13):
        house.check_complete(number)


def test_clock_jump_expires_only_due_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    house = FaultBench()
    house.submit(1, limit=30, deadline_ns=5_000_000_000)
    house.submit(2, limit=30)
    house.step()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the wall's clock is nobody's business here
    house.step()
    house.now += 3600 * 1_000_000_000
    house.drain()
    assert house.ended[1, 0] == "deadline"
    house.check_complete(2)


def test_disconnected_client_leaves_nothing_allocated() -> None:
    house = FaultBench()
    for number in range(1, 200):
        house.submit(number, tenant=number % 3, prompt=1 + number % 30, n=1 + number % 2)
        if number % 3 == 0:
            house.scheduler.cancel(number - number % 7)
        house.step()
    house.drain(8000)
    assert sum(reason == "cancelled" for reason in house.ended.values()) > 20
    for number in range(1, 200):
        if all(house.ended[number, choice] == "length" for choice in range(house.asked[number][1].n)):
            house.check_complete(number)


@pytest.mark.parametrize("steps", range(2, 9))
def test_paused_request_resumes_at_any_step(steps: int) -> None:
    """With its last page full too."""
    house = FaultBench()
    house.submit(1, prompt=3, limit=12)
    for _ in range(steps):
        house.step()
    house.scheduler.hold(1)
    house.step()
    house.scheduler.resume(1)
    house.drain()
    house.check_complete(1)
