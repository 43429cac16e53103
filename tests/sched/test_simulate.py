"""The simulation counts what happens, and says which step broke."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from support import Counts

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.bucket import Bucket
from zinc_rt.sched.kv.kv_cache import KvCache
from zinc_rt.sched.kv.pages import Pages
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.sessions import SessionPins
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.schedule_checks import (
    check_first_token,
    check_gap_ratio,
    check_prefix_hits,
    run_checks,
    run_common_checks,
)
from zinc_rt.sched.simulation.simulate import SimulatedRun, SimulationSettings, draw_token, simulate
from zinc_rt.sched.simulation.simulation_log import compute_jain_index, compute_percentiles
from zinc_rt.sched.simulation.workloads import WORKLOADS
from zinc_rt.sched.step_cost import PREDICTED, StepCost
from zinc_rt.sched.tenant import Priority, Tenant

SECOND = StepCost(
    "a clock", "none", step_us=1e6, prompt_us=0, decode_us=0, context_us=0, source="this test: a second a step"
)
ONE = [Tenant("a")]


def run_simulation(arrivals: list[Arrival], tenants: list[Tenant] = ONE, **settings: object) -> SimulatedRun:
    text = replace(SimulationSettings(slots=4, ctx=1024, check_every=1), **settings)  # type: ignore[arg-type]
    return simulate(arrivals, tenants, text, SECOND)


def is_passed(run: SimulatedRun) -> bool:
    return all(finding.status == "pass" for finding in run_common_checks(run))


def test_single_request_matches_hand_computed_schedule() -> None:
    """Steps of a second: three tokens end at 1, 2 and 3 s after it came, at 10."""
    seen = run_simulation([Arrival(10, "a", 20, 3)])
    assert is_passed(seen) and seen.steps == 3 and seen.seconds == 13
    log = seen.log
    assert (log.arrived_step[0], log.bound_step[0], log.first_step[0]) == (0, 1, 1)
    assert log.list_first_token_seconds(np.array([0])) == [1] and list(
        log.list_gap_seconds(Priority.STANDARD)
    ) == [1, 1]
    assert log.count_delivered_tokens() == 23 and log.compute_hit_share() == 0


def test_step_running_at_arrival_counts() -> None:
    seen = run_simulation([Arrival(0, "a", 20, 5), Arrival(1.5, "a", 20, 1), Arrival(4, "a", 20, 1)])
    steps = seen.log.count_steps_to(seen.log.first_step, np.arange(3))
    assert list(steps) == [1, 2, 1]


def test_conversation_turns_hit_earlier_pages() -> None:
    first, second = Arrival(0, "a", 32, 17, prefix="chat"), Arrival(60, "a", 80, 1, prefix="chat")
    assert run_simulation([first, second]).log.cached.tolist() == [0, 48]
    assert run_simulation([first, replace(second, prefix="other")]).log.cached.tolist() == [0, 0]
    both = [Tenant("a"), Tenant("b")]
    assert run_simulation([first, replace(second, tenant="b")], both).log.cached.tolist() == [0, 0]
    assert run_simulation([first, replace(second, tenant="b")], both, policy="fcfs").log.cached.tolist() == [0, 0]


def test_text_tokens_do_not_depend_on_the_caller() -> None:
    places = np.arange(2000)
    text, other = (draw_token(np.full(1, seed, np.uint64), places) for seed in (1 << 32, 2 << 32))
    assert (text[7:9] == draw_token(np.full(2, 1 << 32, np.uint64), places[7:9])).all()
    assert (text == other).mean() < 0.01 and len(np.unique(text)) > 1900 and text.min() >= 0


def test_same_seed_gives_the_same_run() -> None:
    def count_steps(seed: int) -> list[int]:
        workload = WORKLOADS["pressure"]
        arrivals = workload.arrivals(np.random.default_rng(seed))
        settings = SimulationSettings(pages=workload.pages, most_steps=300)
        return list(simulate(arrivals, workload.tenants, settings, PREDICTED).log.first_ns)

    assert count_steps(4) == count_steps(4) != count_steps(5)


@pytest.mark.parametrize("limit", [{"most_steps": 7}, {"most_seconds": 7.0}])
def test_interrupted_run_releases_everything(limit: dict[str, float]) -> None:
    seen = run_simulation([Arrival(index, "a", 40, 30) for index in range(12)], **limit)
    assert seen.steps == 7 and seen.cut == 7 and not seen.leaked
    result = {finding.id: finding.status for finding in run_common_checks(seen)}
    assert result.pop("everything-ends") == "skip" and set(result.values()) == {"pass"}


def test_impossible_request_is_rejected_before_the_run() -> None:
    with pytest.raises(UsageError, match="line 3: unknown tenant 'x'"):
        run_simulation([Arrival(0, "x", 1, 1, line=3)])
    with pytest.raises(UsageError, match="line 4: 2000 tokens and 1 to generate exceed the context of 1024"):
        run_simulation([Arrival(0, "a", 2000, 1, line=4)])
    with pytest.raises(UsageError, match="exceed the tenant's page quota"):
        run_simulation([Arrival(0, "a", 200, 1)], pages=5)


def test_failing_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "check", lambda s: ["i03: a page"] if s.now_ns >= 5 * 10**9 else [])
    seen = run_simulation([Arrival(0, "a", 40, 30)])
    (finding, *others) = run_common_checks(seen)
    assert finding.status == "fail" and finding.first_bad["step"] == 6 and finding.reason == "i03: a page"
    assert {item.status for item in others} == {"skip"}


def test_scheduler_exception_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_violation(self: Scheduler, number: int, reason: str = "") -> None:
        raise AssertionError("inequality R is violated")

    monkeypatch.setattr(Scheduler, "cancel", raise_violation)
    seen = run_simulation([Arrival(0, "a", 40, 30)], most_steps=3)
    (finding, *_) = run_common_checks(seen)
    assert (
        finding.reason == "AssertionError: inequality R is violated"
        and "raise_violation" in finding.first_bad["traceback"]
    )


def test_unmet_expectation_fails() -> None:
    arrivals = [Arrival(0, "a", 100, 200) for _ in range(8)] + [Arrival(3, "b", 100, 5)]
    seen = run_simulation(arrivals, [Tenant("a"), Tenant("b", Priority.BATCH)])
    result = check_first_token("b", 4).judge(seen, None)
    assert result.status == "fail" and result.first_bad["tenant"] == "b" and result.measure["steps_most"] > 4
    assert check_prefix_hits(0.3).judge(seen, None).status == "fail"
    assert check_gap_ratio(Priority.INTERACTIVE, 1.3).judge(seen, None).status == "skip"


def test_fairness_index_and_percentiles() -> None:
    assert (
        compute_jain_index(np.array([3, 3, 3])) == 1
        and compute_jain_index(np.array([4, 0, 0, 0])) == 0.25
        and compute_jain_index(np.zeros(2)) == 1
    )
    assert compute_percentiles(np.arange(1, 101)) == (50, 99) and compute_percentiles(np.zeros(0)) == (0, 0)


QUICK = ("interactive", "streams", "guarantees", "pressure")


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_runs(name: str, slow_counts: Counts) -> None:
    """Its beginning by default, all of it with what it checks in the slow run."""
    workload = WORKLOADS[name]
    arrivals = workload.arrivals(np.random.default_rng(1))
    whole = name in QUICK[:2] or slow_counts(0, 1)
    settings = SimulationSettings(
        workload.slots, pages=workload.pages, check_every=64, most_steps=None if whole else 150
    )
    seen = simulate(arrivals, workload.tenants, settings, PREDICTED)
    assert {finding.status for finding in run_common_checks(seen)} <= {"pass", *(() if whole else ("skip",))}
    if whole:
        baseline = simulate(arrivals, workload.tenants, replace(settings, policy="fcfs"), PREDICTED)
        result = [check.judge(seen, baseline) for check in workload.checks]
        assert [item for item in result if item.status != "pass"] == []


# --- each field of a tenant


def test_every_field_of_a_tenant_is_set_by_a_workload() -> None:
    unset = {"name", "queue_max"}  # the queue's length is the server's: tests/serve
    tenants = [tenant for workload in WORKLOADS.values() for tenant in workload.tenants]
    for field in fields(Tenant):
        values = {getattr(tenant, field.name) for tenant in tenants}
        assert field.name in unset or len(values) > 1, f"no workload sets {field.name}"
    quotas = {quota for tenant in tenants for quota in tenant.pages}
    assert any(quota.reserved for quota in quotas) and any(quota.most for quota in quotas)
    assert any(quota.group is not None for quota in quotas)


def list_failed(name: str) -> set[str]:
    workload = WORKLOADS[name]
    settings = SimulationSettings(slots=workload.slots, pages=workload.pages, ctx=4096)
    seen = simulate(workload.arrivals(np.random.default_rng(1)), workload.tenants, settings, PREDICTED)
    outcomes = [*run_common_checks(seen), *run_checks(workload.checks, seen, None)]
    return {outcome.id for outcome in outcomes if outcome.status == "fail"}


ADMIT = KvCache.admit


@pytest.mark.parametrize(
    ("workload", "owner", "name", "value", "failed"),
    [
        ("limits", Bucket, "is_allowed", lambda self, now_ns: True, {"rate/prompts", "rate/answers"}),
        ("limits", Tenant, "weight_units", 1000, {"share/double-single"}),
        ("limits", Pages, "can_take", lambda self, tenant, more, spare=0: True, {"invariants"}),
        ("reuse", SessionPins, "pin", lambda self, *rest: None, {"reuse/pinned"}),
        ("reuse", KvCache, "admit", lambda self, *rest, **more: ADMIT(self, *rest, **more | {"ttl_ns": None}),
         {"reuse/brief"}),
    ],
)  # fmt: skip
def test_field_that_the_scheduler_ignores_fails(
    workload: str, owner: object, name: str, value: object, failed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    assert failed <= list_failed(workload)
