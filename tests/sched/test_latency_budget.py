"""Latency budgets: the tokens of a step that fit a time, measured step times, turns of lower classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_runner import FakeRunner

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.state import GapBudget, describe_limit_changes
from zinc_rt.sched.step_cost import LEAST_PROMPT, PREDICTED, MeasuredCost, StepCost
from zinc_rt.sched.tenant import CLASSES, MS_NS, Classes, Priority, Tenant, with_budgets

# 10 ms a step and 1 ms a token; a token of context costs 10 us
COST = StepCost("a clock", "none", 10_000, prompt_us=1000, decode_us=1000, context_us=10, source="this test")
DESK, NIGHT = Tenant("desk", Priority.INTERACTIVE), Tenant("night", Priority.BATCH)


class ClockedRunner(FakeRunner):
    """By its clock, steps take `slower` times as long as predicted by COST."""

    def __init__(self, slower: float = 1.0) -> None:
        super().__init__()
        self.now, self.slower = 0, slower
        self.steps: list[tuple[int, int, float]] = []  # prompt tokens, decodes, ms
        self.decoded: list[list[int]] = []  # slots

    def collect(self, handle: object) -> Drawn:
        plan = handle
        assert isinstance(plan, StepPlan)
        took = int(self.slower * COST.nanoseconds(plan.tokens - plan.decodes, plan.decodes, plan.context))
        self.now += took
        self.steps.append((plan.tokens - plan.decodes, plan.decodes, took / MS_NS))
        self.decoded.append(plan.slot[: plan.decodes].tolist())
        return super().collect(handle)


class LoadBench:
    def __init__(
        self,
        tenants: Sequence[Tenant],
        classes: Classes = CLASSES,
        *,
        slots: int = 8,
        slower: float = 1.0,
        submission_ns: int | None = None,
    ) -> None:
        self.runner = runner = ClockedRunner(slower)
        cache = KvCache((PageGroup("full", 4096),), 16, 512)
        limits = SchedulerLimits(
            slots, 4096, classes=classes, cost=COST, check_every=1, submission_ns=submission_ns
        )
        self.scheduler = runner.scheduler = Scheduler(limits, tenants, cache, runner, lambda: runner.now)
        self.spaces = [make_namespace("m", "canonical-1", "f32", 16) for _ in tenants]
        self.count = 0

    def submit(self, tenant: int, prompt: int, limit: int) -> int:
        self.count += 1
        tokens = [self.count * 7 % 997 + index for index in range(prompt)]
        sampling = Sampling(limit, seed=self.count)
        self.scheduler.submit(NewRequest(self.count, tenant, tokens, self.spaces[tenant], sampling))
        return self.count

    def steps(self, count: int) -> list[tuple[int, int, float]]:
        before = len(self.runner.steps)
        for _ in range(count):
            self.scheduler.step()
        return self.runner.steps[before:]


def set_budgets(gap_ms: float | None, first_token_ms: float | None = None) -> Classes:
    row = replace(CLASSES[Priority.INTERACTIVE], gap_ns=None, first_token_ns=None)
    return with_budgets({**CLASSES, Priority.INTERACTIVE: row}, gap_ms=gap_ms, first_token_ms=first_token_ms)


# --- what fits a time


@pytest.mark.parametrize("budget_ms", [5, 10.5, 12, 30, 31.7, 100, 1000])
@pytest.mark.parametrize(("decodes", "context"), [(0, 0), (4, 400), (16, 3000)])
def test_largest_prompt_part_within_the_budget_is_computed(budget_ms: float, decodes: int, context: int) -> None:
    """Found by trying every number."""
    budget = int(budget_ms * MS_NS)
    fits = [n for n in range(1, 513) if COST.nanoseconds(n, decodes, context + n) <= budget]
    assert MeasuredCost(COST).prompt_tokens(budget, decodes, context, 512) == max(fits, default=0)


def test_cost_follows_the_device() -> None:
    cost = MeasuredCost(COST)
    for took in (10**12, *(3 * COST.nanoseconds(0, 4, 100),) * 5, 10**12):  # the first step, and one that hung
        cost.observe(0, 4, 100, took)
    assert cost.nanoseconds(0, 4, 100) == 3 * COST.nanoseconds(0, 4, 100)
    assert cost.nanoseconds(8, 4, 100) == 3 * COST.nanoseconds(8, 4, 100), "of the nearest size that ran"
    for _ in range(100):
        cost.observe(0, 4, 100, COST.nanoseconds(0, 4, 100) // 2)
    assert cost.nanoseconds(0, 4, 100) == pytest.approx(COST.nanoseconds(0, 4, 100) / 2, abs=2)
    (row,) = cost.report()
    assert (row.prompts, row.tokens, row.steps, row.ratio) == (False, 4, 107, pytest.approx(0.5, rel=1e-6))


def test_stopped_clock_yields_no_measurement() -> None:
    cost = MeasuredCost(COST)
    for _ in range(5):
        cost.observe(0, 4, 100, 0)
    assert cost.nanoseconds(0, 4, 100) == COST.nanoseconds(0, 4, 100) and not list(cost.report())


def test_each_size_has_its_own_ratio() -> None:
    """Large steps are ten times as slow as predicted: the budget is met by a small one."""
    cost = MeasuredCost(COST)
    for _ in range(3):
        cost.observe(500, 0, 500, 10 * COST.nanoseconds(500, 0, 500))
        cost.observe(30, 0, 30, COST.nanoseconds(30, 0, 30))
    budget = COST.nanoseconds(400, 0, 400)
    room = cost.prompt_tokens(budget, 0, 0, 512)
    assert 32 <= room < 256 and cost.nanoseconds(room, 0, room) <= budget


# --- steps


def test_prompts_get_the_rest_of_an_interactive_gap_budget() -> None:
    load = LoadBench([DESK, NIGHT], set_budgets(30))
    load.submit(0, 8, 200)
    load.steps(2)
    load.submit(1, 2000, 4)
    steps = load.steps(30)
    assert all(decodes == 1 and prompt >= LEAST_PROMPT for prompt, decodes, _ in steps)
    assert max(ms for *_, ms in steps) <= 30 and min(ms for *_, ms in steps) > 27
    assert load.scheduler.counts.limited_steps == 30


def test_step_time_is_unlimited_without_a_budget() -> None:
    load = LoadBench([DESK, NIGHT], set_budgets(None))
    load.submit(0, 8, 200)
    load.steps(2)
    load.submit(1, 2000, 4)
    assert load.steps(2)[0][0] > 490 and not load.scheduler.counts.limited_steps


def test_batch_answers_have_no_gap_budget() -> None:
    load = LoadBench([NIGHT], set_budgets(30))
    load.submit(0, 8, 200)
    load.steps(2)
    load.submit(0, 2000, 4)
    assert load.steps(2)[0][0] > 490


def test_prompt_gets_its_minimum_part_of_an_infeasible_budget() -> None:
    load = LoadBench([DESK, NIGHT], set_budgets(5))
    load.submit(0, 8, 200)
    load.steps(2)
    load.submit(1, 100, 4)
    assert [prompt for prompt, _, _ in load.steps(3)] == [LEAST_PROMPT] * 3
    counts = load.scheduler.counts
    assert counts.infeasible_steps >= 3 and counts.infeasible_ns >= COST.nanoseconds(0, 1, 9)


def test_lower_decodes_take_turns_in_equal_shares() -> None:
    """One interactive and seven batch decodes take 18 ms and their context; 15 ms have room for one to three."""
    load = LoadBench([NIGHT, DESK], set_budgets(None))
    for _ in range(7):
        load.submit(0, 8, 400)
    load.submit(1, 8, 400)
    load.steps(30)
    load.scheduler.gap_budgets = [GapBudget(15 * MS_NS, Priority.INTERACTIVE)]
    begin = len(load.runner.decoded)
    desk = next(r.slot for r in load.scheduler.running() if r.tenant == 1)
    result = {r.number: r.generated for r in load.scheduler.running()}
    steps = load.steps(70)
    assert all(ms <= 15 for *_, ms in steps) and all(desk in slots for slots in load.runner.decoded[begin:])
    gained = {r.number: r.generated - result[r.number] for r in load.scheduler.running()}
    others = [count for number, count in gained.items() if number <= 7]
    assert gained[8] == 70 and max(others) - min(others) <= 1 and min(others) >= 18
    assert load.scheduler.counts.infeasible_steps == 70


def test_rotation_loses_no_token() -> None:
    """Answers are those of an unlimited run, whoever waited for a turn."""
    result = []
    for classes in (set_budgets(None), set_budgets(13)):
        load = LoadBench([NIGHT, DESK], classes)
        for index in range(8):
            load.submit(index % 2, 20 + index, 30)
        tokens: dict[int, list[int]] = {}
        while (batch := load.scheduler.step()) is not None:
            for number, token in zip(batch.requests.tolist(), batch.tokens.tolist(), strict=True):
                tokens.setdefault(number, []).append(token)
        result.append(tokens)
    assert result[0] == result[1] and all(len(item) == 30 for item in result[1].values())


def test_other_prompts_get_the_rest_of_the_first_token_budget() -> None:
    load = LoadBench([DESK, NIGHT], set_budgets(None, 100))
    load.submit(1, 2000, 4)
    load.submit(0, 20, 4)
    ((prompt, _, ms), *_) = load.steps(1)
    assert 20 + LEAST_PROMPT < prompt < 100 and ms <= 100


def test_slow_device_is_measured_and_kept_within_the_budget() -> None:
    """It is four times as slow as predicted: once that is seen, steps fit again."""
    load = LoadBench([DESK, NIGHT], set_budgets(120), slower=4)
    load.submit(0, 8, 200)
    load.steps(2)
    load.submit(1, 3000, 4)
    steps = load.steps(60)
    assert steps[0][2] > 240 and all(100 < ms <= 120 for *_, ms in steps[20:])
    assert any(math.isclose(row.ratio, 4, rel_tol=0.01) for row in load.scheduler.cost.report())


# --- as a setting


def test_prompt_is_split_where_the_driver_ends_long_submissions() -> None:
    load = LoadBench([NIGHT], submission_ns=100 * MS_NS, slower=2.0)
    load.submit(0, 900, 2)
    steps = load.steps(40)
    assert sum(prompt for prompt, _, _ in steps) == 900
    assert max(took for _, _, took in steps[2:]) <= 100, "two were planned before one was measured"
    output = "scheduler: submission 100 ms: longer prompts are split (default none)"
    assert output in describe_limit_changes(load.scheduler.limits)


def test_budgets_are_set_for_interactive_and_standard_requests() -> None:
    result = with_budgets(CLASSES, gap_ms=50, first_token_ms=0)
    for priority in (Priority.INTERACTIVE, Priority.STANDARD):
        assert (result[priority].gap_ns, result[priority].first_token_ns) == (50 * MS_NS, None)
    assert result[Priority.BATCH] == CLASSES[Priority.BATCH] and with_budgets(CLASSES) == CLASSES
    with pytest.raises(UsageError, match=r"gap budget -1 ms: expected a positive number"):
        with_budgets(CLASSES, gap_ms=-1)


def test_changed_limits_are_reported_by_name() -> None:
    assert describe_limit_changes(SchedulerLimits(8, 4096)) == []
    classes = with_budgets(CLASSES, gap_ms=50)
    assert describe_limit_changes(SchedulerLimits(8, 4096, 128, classes=classes, cost=COST)) == [
        "scheduler: step_tokens 128 (default 512)",
        "scheduler: interactive gap 50 ms (default 30 ms)",
        "scheduler: standard gap 50 ms (default none)",
        f"scheduler: step cost of a clock (default {PREDICTED.card})",
    ]
