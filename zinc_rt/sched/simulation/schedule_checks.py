"""Checks of a simulated run, each with a measure and a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from zinc_rt.sched.simulation.simulate import SimulatedRun
from zinc_rt.sched.simulation.simulation_log import NEVER, compute_percentiles
from zinc_rt.sched.step_cost import NS
from zinc_rt.sched.tenant import Priority, Tenant

BROKE = "an earlier step failed"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of a check. `status` "skip": the run had no data for it, and the `reason` is given."""

    id: str
    status: Literal["pass", "fail", "skip"]
    measure: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    first_bad: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleCheck:
    """`judge(seen, baseline)`: `baseline` is the same traffic under first come, first served; None unless
    requested."""

    id: str
    judge: Callable[[SimulatedRun, SimulatedRun | None], CheckOutcome]
    needs_baseline: bool = False


def check_first_token(tenant: str, steps: int) -> ScheduleCheck:
    """Limit the steps to the first token, counting those that end after the arrival."""
    id = f"first-token/{tenant}"
    return ScheduleCheck(id, lambda seen, _: _check_steps(seen, id, tenant, seen.log.first_step, steps))


def check_slot(tenant: str, steps: int) -> ScheduleCheck:
    """Limit the steps to a slot, including the first step in it."""
    id = f"slot/{tenant}"
    return ScheduleCheck(id, lambda seen, _: _check_steps(seen, id, tenant, seen.log.bound_step, steps))


def check_answer(tenant: str, seconds: float) -> ScheduleCheck:
    """Limit the seconds to the first token: the bands of its class, plus the time until it has a slot after
    that.
    """
    id = f"first-token-seconds/{tenant}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        waits = outcome.log.list_first_token_seconds(outcome.log.of(tenant))
        if not len(waits):
            return CheckOutcome(id, "skip", reason=f"no request of {tenant} got its first token so far")
        return _make_outcome(
            id, waits.max() <= seconds, {"seconds_most": float(waits.max())}, {"seconds_most": seconds}
        )

    return ScheduleCheck(id, judge)


def _check_steps(outcome: SimulatedRun, id: str, tenant: str, column: np.ndarray, maximum: int) -> CheckOutcome:
    log = outcome.log
    requests = log.of(tenant)
    requests = requests[column[requests] != NEVER]
    if not len(requests):
        return CheckOutcome(id, "skip", reason=f"no request of {tenant} came so far")
    steps = log.count_steps_to(column, requests)
    worst = int(np.argmax(steps))
    measure = {"steps_most": int(steps[worst]), "requests": len(steps)}
    return _make_outcome(
        id,
        steps[worst] <= maximum,
        measure,
        {"steps_most": maximum},
        _format_request(outcome, int(requests[worst])),
    )


def check_gap_ratio(priority: Priority, ratio: float) -> ScheduleCheck:
    """Limit a class's p99 gap between tokens to the larger of its latency budget and `ratio` times its p50."""
    id = f"gap-ratio/{priority.name.lower()}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        gaps = outcome.log.list_gap_seconds(priority)
        if len(gaps) < 1000:
            return CheckOutcome(id, "skip", reason=f"{len(gaps)} gaps: a p99 needs at least 1,000")
        p50, p99 = compute_percentiles(gaps)
        budget_ns = outcome.settings.classes[priority].gap_ns or 0
        measure = {"p50_seconds": p50, "p99_seconds": p99, "ratio": p99 / p50, "gaps": len(gaps)}
        limit = max(ratio * p50, budget_ns / 1e9)
        return _make_outcome(id, p99 <= limit, measure, {"p99_seconds": limit})

    return ScheduleCheck(id, judge)


def check_gap(priority: Priority, seconds: float) -> ScheduleCheck:
    """Limit a class's median gap between tokens."""
    id = f"gap/{priority.name.lower()}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        gaps = outcome.log.list_gap_seconds(priority)
        if not len(gaps):
            return CheckOutcome(id, "skip", reason="no request of the class has two tokens so far")
        p50, p99 = compute_percentiles(gaps)
        return _make_outcome(
            id, p50 <= seconds, {"p50_seconds": p50, "p99_seconds": p99}, {"p50_seconds": seconds}
        )

    return ScheduleCheck(id, judge)


def check_relative_speed(priority: Priority, minimum: float) -> ScheduleCheck:
    """Require a share of the baseline's tokens per second, over its whole run, while requests of the class
    decode: which is the cost of their latency budget."""
    id = f"speed-beside/{priority.name.lower()}"

    def judge(outcome: SimulatedRun, baseline: SimulatedRun | None) -> CheckOutcome:
        ours = outcome.log.compute_speed_beside(priority)
        if baseline is None or not baseline.seconds or not ours:
            return CheckOutcome(id, "skip", reason="no request of the class decoded, or there is no baseline")
        theirs = baseline.log.count_delivered_tokens() / baseline.seconds
        if not theirs:
            return CheckOutcome(id, "skip", reason="the baseline delivered no token so far")
        measure = {"share": ours / theirs, "tokens_per_second": ours, "fcfs_tokens_per_second": theirs}
        return _make_outcome(id, ours >= minimum * theirs, measure, {"share": minimum})

    return ScheduleCheck(id, judge, needs_baseline=True)


def check_fairness(minimum: float) -> ScheduleCheck:
    """Require a minimum of Jain's index of slots by weight, over the windows in which several tenants waited."""

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        slots, tokens = outcome.log.list_jain_indices()
        if not slots:
            return CheckOutcome("jain", "skip", reason="no two tenants of a class ever waited at the same time")
        measure = {"slots": float(np.mean(slots)), "tokens": float(np.mean(tokens)), "windows": len(slots)}
        return _make_outcome("jain", measure["slots"] >= minimum, measure, {"slots": minimum})

    return ScheduleCheck("jain", judge)


def check_throughput_loss(maximum: float) -> ScheduleCheck:
    """Limit the loss of tokens per second against first come, first served."""

    def judge(outcome: SimulatedRun, baseline: SimulatedRun | None) -> CheckOutcome:
        if baseline is None:
            return CheckOutcome(
                "throughput-lost", "skip", reason="the run has no first come, first served baseline"
            )
        if outcome.cut or baseline.cut:
            return CheckOutcome(
                "throughput-lost", "skip", reason="the run was cut short: the work differs from the baseline"
            )
        ours, theirs = (item.log.count_delivered_tokens() / item.seconds for item in (outcome, baseline))
        lost = 1 - ours / theirs
        measure = {"lost": lost, "tokens_per_second": ours, "fcfs_tokens_per_second": theirs}
        return _make_outcome("throughput-lost", lost <= maximum, measure, {"lost": maximum})

    return ScheduleCheck("throughput-lost", judge, needs_baseline=True)


def check_prefix_hits(minimum: float) -> ScheduleCheck:
    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        share = outcome.log.compute_hit_share()
        return _make_outcome(
            "prefix-hits", share >= minimum, {"share_of_prompt_tokens": share}, {"share_of_prompt_tokens": minimum}
        )

    return ScheduleCheck("prefix-hits", judge)


def check_evictions() -> ScheduleCheck:
    """Require evictions. A workload with scarce pages has no result without them."""
    return ScheduleCheck(
        "evictions",
        lambda seen, _: _make_outcome(
            "evictions", seen.counts.evicted > 0, {"evictions": seen.counts.evicted}, {"evictions_least": 1}
        ),
    )


def check_reuse(tenant: str, tokens: Sequence[int]) -> ScheduleCheck:
    """Require the prompt tokens that each request of a tenant, in order, takes from the cache: all full pages but
    the last, or none. `tokens`: 1 for some, 0 for none."""
    id = f"reuse/{tenant}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        cached = outcome.log.cached[outcome.log.of(tenant)].tolist()
        same = [min(1, count) for count in cached] == list(tokens)
        return _make_outcome(id, same, {"cached_tokens": cached}, {"reused": list(tokens)})

    return ScheduleCheck(id, judge)


def check_rate(tenant: Tenant) -> ScheduleCheck:
    """Require a tenant's rate of prompt or answer tokens while it has more to do: no more than its rate and burst,
    with what its slots had in work when the bucket was empty, and no less than nine tenths of the rate."""
    rate, burst = tenant.prefill or tenant.decode or (0, 0)
    id = f"rate/{tenant.name}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        log = outcome.log
        mine = log.of(tenant.name)
        mine = mine[log.ended_ns[mine] != NEVER]
        if not len(mine):
            return CheckOutcome(id, "skip", reason=f"no request of {tenant.name} ended so far")
        each = log.prompt if tenant.prefill else log.made_tokens
        seconds = float(log.ended_ns[mine].max() - log.arrived_ns[mine].min()) / NS
        debt = int(each[mine].max()) * int(log.most_slots[outcome.tenants.index(tenant)])
        measure = {"tokens": int(each[mine].sum()), "seconds": seconds}
        limit = {"tokens_least": 0.9 * rate * seconds, "tokens_most": burst + rate * seconds + debt}
        passed = limit["tokens_least"] <= measure["tokens"] <= limit["tokens_most"]
        return _make_outcome(id, passed, measure, limit)

    return ScheduleCheck(id, judge)


def check_most(tenant: str, what: Literal["slots", "pages"], maximum: int) -> ScheduleCheck:
    """Require that a tenant with more to do uses its limit of slots or pages at some time, and never more. Pages
    come by whole requests: two thirds of them are enough."""
    id = f"most-{what}/{tenant}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        log = outcome.log
        column = log.most_slots if what == "slots" else log.most_pages
        most = int(column[[row.name for row in outcome.tenants].index(tenant)])
        least = maximum if what == "slots" else 2 / 3 * maximum
        limit = {f"{what}_least": least, f"{what}_most": maximum}
        return _make_outcome(id, least <= most <= maximum, {f"{what}_at_once": most}, limit)

    return ScheduleCheck(id, judge)


def check_share(heavy: str, light: str) -> ScheduleCheck:
    """Require that two tenants have slots by their weights, within a sixth, over the windows in which both
    wait."""
    id = f"share/{heavy}-{light}"

    def judge(outcome: SimulatedRun, _: SimulatedRun | None) -> CheckOutcome:
        names = [tenant.name for tenant in outcome.tenants]
        pair = names.index(heavy), names.index(light)
        windows, steps = outcome.log.count_slot_steps(pair)
        if not windows:
            return CheckOutcome(id, "skip", reason=f"{heavy} and {light} never waited at the same time")
        wanted = outcome.tenants[pair[0]].weight / outcome.tenants[pair[1]].weight
        ratio = int(steps[0]) / max(1, int(steps[1]))
        limit = {"ratio_least": wanted * 5 / 6, "ratio_most": wanted * 7 / 6}
        passed = limit["ratio_least"] <= ratio <= limit["ratio_most"]
        return _make_outcome(id, passed, {"ratio": ratio, "windows": windows}, limit)

    return ScheduleCheck(id, judge)


def run_checks(
    checks: Sequence[ScheduleCheck], outcome: SimulatedRun, baseline: SimulatedRun | None
) -> list[CheckOutcome]:
    """Return the outcome of each check."""
    if outcome.broken is not None:
        return [CheckOutcome(check.id, "skip", reason=BROKE) for check in checks]
    return [check.judge(outcome, baseline) for check in checks]


def run_common_checks(outcome: SimulatedRun) -> list[CheckOutcome]:
    """Run the checks that apply to any traffic."""
    return [
        _check_invariants(outcome),
        _check_all_ended(outcome),
        _check_no_leaks(outcome),
        _check_ledger(outcome),
    ]


def _check_invariants(outcome: SimulatedRun) -> CheckOutcome:
    broken = outcome.broken
    every = outcome.settings.check_every
    measure: dict[str, Any] = {"steps": outcome.steps, "checks": outcome.checks, "every": every}
    if broken is None:
        return CheckOutcome("invariants", "pass", measure, {"violations": 0})
    bad = {"step": broken.step, "seed": outcome.settings.seed, "found": list(broken.problems)}
    if broken.where:
        bad["traceback"] = broken.where
    return CheckOutcome(
        "invariants",
        "fail",
        measure | {"violations": len(broken.problems)},
        {"violations": 0},
        broken.problems[0],
        bad,
    )


def _check_all_ended(outcome: SimulatedRun) -> CheckOutcome:
    """Check that all requests of each class received their tokens, so that none waits forever."""
    log, settings = outcome.log, outcome.settings
    unended = np.flatnonzero(log.made_tokens != log.output)
    whole = len(log.prompt) - len(unended)
    measure = {"requests": len(log.prompt), "whole": whole}
    measure |= {f"ended_by_{reason}": count for reason, count in sorted(log.reasons.items())}
    if outcome.broken is not None:
        return CheckOutcome("everything-ends", "skip", measure, reason=BROKE)
    if len(unended) and (settings.most_steps is not None or settings.most_seconds is not None):
        return CheckOutcome("everything-ends", "skip", measure, reason="the run was cut short")
    first = _format_request(outcome, int(unended[0])) if len(unended) else {}
    return _make_outcome("everything-ends", not len(unended), measure, {"whole": len(log.prompt)}, first)


def _check_no_leaks(outcome: SimulatedRun) -> CheckOutcome:
    if outcome.broken is not None:
        return CheckOutcome("nothing-left", "skip", reason=BROKE)
    return _make_outcome(
        "nothing-left", not outcome.leaked, {"held": len(outcome.leaked)}, {"held": 0}, {"held": outcome.leaked}
    )


def _check_ledger(outcome: SimulatedRun) -> CheckOutcome:
    """Check L1 to L6 of the ledger, and compare its counts per tenant with those of the requests."""
    if outcome.broken is not None:
        return CheckOutcome("ledger", "skip", reason=BROKE)
    result = outcome.unbalanced
    return _make_outcome("ledger", not result, {"differences": len(result)}, {"differences": 0}, {"found": result})


def _make_outcome(
    id: str, passed: bool, measure: dict[str, Any], limit: dict[str, Any], first_bad: dict[str, Any] | None = None
) -> CheckOutcome:
    return CheckOutcome(
        id, "pass" if passed else "fail", measure, limit, first_bad={} if passed else first_bad or {}
    )


def _format_request(outcome: SimulatedRun, number: int) -> dict[str, Any]:
    log = outcome.log
    return {
        "request": number + 1,
        "tenant": log.tenants[log.tenant[number]].name,
        "arrived_step": int(log.arrived_step[number]),
        "bound_step": int(log.bound_step[number]),
        "first_token_step": int(log.first_step[number]),
        "made": int(log.made_tokens[number]),
    }
