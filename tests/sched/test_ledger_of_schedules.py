"""The ledger of real schedules: every range of steps balances, and tenants are charged what was done for them."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from fake_runner import FakeRunner
from scheduler_machine import PAGE, PlainSchedulerMachine, SchedulerMachine
from support import Counts
from test_soak import arrive

from zinc_rt.sampling import Sampling
from zinc_rt.sched.balance import unbalanced
from zinc_rt.sched.kv_cache import KvCache, PageGroup
from zinc_rt.sched.ledger import PEAK, LedgerDelta, UsageLedger
from zinc_rt.sched.prefix import namespace
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Tenant


def balanced(delta: LedgerDelta) -> Counter[tuple[str, str]]:
    """The delta's amounts, once both sides are equal."""
    amounts = Counter({key: value for key, value in delta.usage.items() if key[1] != PEAK})
    sums = Counter[str]()
    for (_, counter), value in amounts.items():
        sums[counter] += value
    assert not unbalanced(sums, delta.device)
    return amounts


@pytest.mark.parametrize("machine", [SchedulerMachine, PlainSchedulerMachine])
def test_every_range_of_any_schedule_balances(machine: type[SchedulerMachine], slow_counts: Counts) -> None:
    for seed in range(slow_counts(1, 100)):
        choice, m = random.Random(seed), machine()
        ledger = m.scheduler.ledger
        assert ledger is not None
        taken = Counter[tuple[str, str]]()
        while m.number < 60 or m.scheduler.live:
            what = choice.random()
            if what < 0.25 and m.number < 60:
                arrive(m, choice)
            elif what < 0.28:
                m.scheduler.cancel(m.number - choice.randint(0, 9))
            elif what < 0.30:
                m.runner.fails = 1
            elif what < 0.31:
                m.runner.nan.add(m.number)
            elif what < 0.40:
                taken += balanced(ledger.take())
            else:
                m.one_step(choice.choice([1, 10, 500]))
        taken += balanced(ledger.take())
        sums = Counter[str]()
        for (_, counter), value in taken.items():
            sums[counter] += value
        assert sums["tokens_generated"] == sum(map(len, m.made.values()))
        assert sums["prompt_tokens_computed"] <= _asked(m)
        ended = sum(value for counter, value in sums.items() if counter.startswith("requests_f"))
        cancelled = sum(value for counter, value in sums.items() if counter.startswith("requests_c"))
        assert sums["requests_accepted"] == len(m.made) == ended + cancelled
        assert sums["tokens_recomputed"] and sums["parks"] and sums["evictions"], "there was no pressure"


def _asked(m: SchedulerMachine) -> int:
    """Prompt tokens of all choices."""
    return sum(m.asked[number][0] for number, _ in m.made)


def test_without_pressure_a_prompt_token_is_computed_once_or_was_cached() -> None:
    cache, runner, now = KvCache((PageGroup("full", 400),), PAGE, 64, 0), FakeRunner(), [0]
    tenants = [Tenant("ada"), Tenant("bob")]
    ledger = UsageLedger(["ada", "bob"], {"full": 400})
    limits = SchedulerLimits(4, 64, 40)
    scheduler = Scheduler(limits, tenants, cache, runner, lambda: now[0], ledger=ledger)
    runner.scheduler = scheduler
    spaces = [namespace("m", "canonical-1", "f32", PAGE, secret=bytes([n]) * 32) for n in range(2)]
    for number in range(1, 13):
        prompt = [1, 2, 3] * 4 + list(range(number))
        scheduler.submit(NewRequest(number, number % 2, prompt, spaces[number % 2], Sampling(number, seed=number)))
    while scheduler.step() is not None or scheduler.live:
        now[0] += 1_000_000
    assert not ledger.problems()
    for tenant, name in enumerate(("ada", "bob")):
        usage, numbers = ledger.usage(name), range(2 - tenant, 13, 2)
        cached = usage["prompt_tokens_cached"]
        assert cached > 0 and cached % PAGE == 0
        assert usage["prompt_tokens_computed"] + cached == sum(12 + number for number in numbers)
        assert usage["tokens_generated"] == sum(numbers)
        assert usage["decode_inputs"] == sum(number - 1 for number in numbers)
        assert usage["requests_accepted"] == usage["requests_finished.length"] == 6
        assert "tokens_recomputed" not in usage and "parks" not in usage
