"""How long until a first token, in steps that end after the arrival, where others have everything."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_runner import FakeRunner

from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.step_cost import LEAST_PROMPT
from zinc_rt.sched.tenant import Priority, Tenant

SLOTS, PAGE = 16, 16


class SchedulerBench:
    def __init__(self, tenants: Sequence[Tenant], *, slots: int = SLOTS, pages: int = 4096) -> None:
        self.now, self.step_ns = 0, 20_000_000
        cache = KvCache((PageGroup("full", pages),), PAGE, 512)
        limits = SchedulerLimits(slots, 4096, step_tokens=512)
        runner = FakeRunner()
        self.scheduler = runner.scheduler = Scheduler(limits, tenants, cache, runner, lambda: self.now)
        self.spaces = [make_namespace("m", "canonical-1", "f32", PAGE) for _ in tenants]
        self.count = 0
        self.first: dict[int, int] = {}
        self.steps = 0

    def submit(self, tenant: int, prompt: int, limit: int) -> int:
        self.count += 1
        tokens = [self.count * 7 % 997 + index for index in range(prompt)]
        self.scheduler.submit(NewRequest(self.count, tenant, tokens, self.spaces[tenant], Sampling(limit)))
        return self.count

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += self.step_ns
            batch = self.scheduler.step()
            self.steps += 1
            for number in batch.requests.tolist() if batch else ():
                self.first.setdefault(number, self.steps)

    def steps_to_first_token(self, number: int, maximum: int = 2000) -> int:
        """The step that runs at its arrival counts too, but there is none here, so the result is one more than the
        steps taken.
        """
        steps = self.steps
        while number not in self.first and self.steps - steps < maximum:
            self.step()
        return self.first[number] - steps + 1


def test_interactive_request_preempts_full_batch_slots() -> None:
    engine = SchedulerBench([Tenant("night", Priority.BATCH), Tenant("desk", Priority.INTERACTIVE)])
    for _ in range(3 * SLOTS):
        engine.submit(0, 200, 500)
    engine.step(20)
    assert sum(1 for _ in engine.scheduler.running()) == SLOTS
    assert engine.steps_to_first_token(engine.submit(1, 100, 20)) <= 2


@pytest.mark.parametrize("priority", list(Priority))
def test_single_request_is_served_during_flood_of_another_tenant(priority: Priority) -> None:
    engine = SchedulerBench([Tenant("flood", priority), Tenant("one", priority)])
    for _ in range(200):
        engine.submit(0, 100, 300)
    engine.step(10)
    assert engine.steps_to_first_token(engine.submit(1, LEAST_PROMPT, 20)) <= 4


def test_prompt_gets_its_minimum_part_during_answers_with_a_latency_budget() -> None:
    """Sixteen interactive decodes take longer than their budget already."""
    engine = SchedulerBench([Tenant("flood", Priority.INTERACTIVE), Tenant("one", Priority.INTERACTIVE)])
    for _ in range(200):
        engine.submit(0, 100, 1000)
    engine.step(300)
    assert engine.steps_to_first_token(engine.submit(1, 100, 20)) <= 4 + -(-100 // LEAST_PROMPT)
    assert engine.scheduler.counts.infeasible_steps > 0


@pytest.mark.parametrize("priority", [Priority.STANDARD, Priority.BATCH])
def test_aged_flood_gets_no_precedence_over_other_tenants(priority: Priority) -> None:
    """Its waiters have been there for all bands of their class, while its tenant has every slot."""
    engine = SchedulerBench([Tenant("flood", priority), Tenant("one", priority)])
    for _ in range(200):
        engine.submit(0, 100, 300)
    engine.step(10)
    engine.now += 4 * 60 * 10**9
    engine.step(5)
    assert engine.steps_to_first_token(engine.submit(1, 100, 20)) <= 4


def test_guarantee_is_honoured_immediately_for_any_class() -> None:
    engine = SchedulerBench(
        [Tenant("desk", Priority.INTERACTIVE), Tenant("night", Priority.BATCH, slots_guaranteed=2)]
    )
    for _ in range(200):
        engine.submit(0, 60, 400)
    engine.step(200)  # the flood's own prompts are computed
    assert engine.steps_to_first_token(engine.submit(1, LEAST_PROMPT, 20)) <= 2
    assert engine.scheduler.bound[1] == 1


def test_every_class_is_served_under_flood_of_higher_classes() -> None:
    """The flood outlasts all waiting; who got a slot for having waited keeps it for its slice."""
    engine = SchedulerBench(
        [Tenant("desk", Priority.INTERACTIVE), Tenant("team"), Tenant("night", Priority.BATCH)]
    )
    engine.step_ns = 200_000_000
    for _ in range(64):
        engine.submit(0, 60, 2000)
    engine.step(5)
    team, night = engine.submit(1, 60, 20), engine.submit(2, 60, 20)
    bands = {1: 3 * 10, 2: 3 * 60}  # seconds
    prompt = 60 / LEAST_PROMPT * 0.2 + 1
    assert engine.steps_to_first_token(team) * 0.2 <= bands[1] + prompt
    assert engine.steps_to_first_token(night) * 0.2 <= bands[2] + prompt
    engine.step(20)
    assert engine.scheduler.live.keys() == set(range(1, 65))


def test_two_flooding_tenants_share_by_weight() -> None:
    engine = SchedulerBench([Tenant("a"), Tenant("b", weight=3.0)])
    for _ in range(100):
        engine.submit(0, 60, 400)
        engine.submit(1, 60, 400)
    engine.step(50)
    assert engine.scheduler.bound == [SLOTS // 4, 3 * SLOTS // 4]
    service = engine.scheduler.service
    assert service.to_tokens(0) == pytest.approx(service.to_tokens(1), rel=0.2)


def test_more_tenants_than_slots_take_turns() -> None:
    engine = SchedulerBench([Tenant(f"t{n}") for n in range(6)], slots=2)
    numbers = [engine.submit(tenant, 30, 1000) for tenant in range(6)]
    engine.step(600)
    assert set(numbers) <= engine.first.keys()
    result = [engine.scheduler.live[number][0].generated for number in numbers]
    assert min(result) > 0.5 * max(result)


def test_slot_does_not_rotate_when_pages_decide_the_share() -> None:
    """Two tenants hold a third of the pages each, parked or not: their shares are equal whoever has the slot."""
    engine = SchedulerBench([Tenant(name) for name in "abcdef"], slots=8, pages=60)
    engine.submit(0, 300, 40)
    for tenant in (2, 2, 3, 3, 4, 4, 5):
        engine.submit(tenant, 10, 60)
    engine.step(3)
    assert engine.scheduler.bound == [1, 0, 2, 2, 2, 1]
    assert engine.steps_to_first_token(engine.submit(1, 300, 40)) <= 60
    assert engine.scheduler.counts.parked <= 1


def test_equal_tenants_do_not_preempt_each_other_repeatedly() -> None:
    """Two tenants with equal demand: nobody is parked again and again."""
    engine = SchedulerBench([Tenant("a"), Tenant("b")])
    for _ in range(50):
        engine.submit(0, 40, 300)
        engine.submit(1, 40, 300)
    engine.step(200)
    assert engine.scheduler.counts.parked <= SLOTS
