"""The ledger of real schedules: every range of steps balances, and tenants are charged what was done for them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from fake_runner import FakeRunner
from scheduler_machine import PAGE, DraftingSchedulerMachine, PlainSchedulerMachine, SchedulerMachine
from support import Counts
from test_soak import submit_request

from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import Namespace, make_namespace
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.usage.balance import find_unbalanced
from zinc_rt.sched.usage.latency import FIRST_TOKEN, INTER_TOKEN, find_buckets, is_latency, name_counter
from zinc_rt.sched.usage.ledger import PEAK, LedgerDelta, UsageLedger


def balanced_amounts(delta: LedgerDelta) -> Counter[tuple[str, str]]:
    """Return the amounts of the delta after checking that both sides are equal."""
    amounts = Counter({key: value for key, value in delta.usage.items() if key[1] != PEAK})
    sums = Counter[str]()
    for (_, counter), value in amounts.items():
        sums[counter] += value
    assert not find_unbalanced(sums, delta.device)
    return amounts


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("machine", [SchedulerMachine, PlainSchedulerMachine, DraftingSchedulerMachine])
def test_every_range_of_any_schedule_balances(machine: type[SchedulerMachine], slow_counts: Counts) -> None:
    for seed in range(slow_counts(1, 100)):
        choice, m = random.Random(seed), machine()
        ledger = m.scheduler.ledger
        assert ledger is not None
        taken = Counter[tuple[str, str]]()
        while m.number < 60 or m.scheduler.live:
            what = choice.random()
            if what < 0.25 and m.number < 60:
                submit_request(m, choice)
            elif what < 0.28:
                m.scheduler.cancel(m.number - choice.randint(0, 9))
            elif what < 0.30:
                m.runner.fails = 1
            elif what < 0.31:
                m.runner.nan.add(m.number)
            elif what < 0.40:
                taken += balanced_amounts(ledger.take())
            else:
                m.one_step(choice.choice([1, 10, 500]))
        taken += balanced_amounts(ledger.take())
        sums = Counter[str]()
        for (_, counter), value in taken.items():
            sums[counter] += value
        assert sums["tokens_generated"] == sum(map(len, m.generated.values()))
        assert sums["tokens_generated"] == sum(sums[counter] for counter in sums if is_latency(counter))
        assert sums["prompt_tokens_computed"] <= requested_prompt_tokens(m)
        ended = sum(value for counter, value in sums.items() if counter.startswith("requests_f"))
        cancelled = sum(value for counter, value in sums.items() if counter.startswith("requests_c"))
        assert sums["requests_accepted"] == len(m.generated) == ended + cancelled
        assert sums["tokens_recomputed"] and sums["parks"] and sums["evictions"], "there was no pressure"


def requested_prompt_tokens(m: SchedulerMachine) -> int:
    """Prompt tokens of all choices."""
    return sum(m.asked[number][0] for number, _ in m.generated)


def scheduler_of(
    tenants: list[Tenant], secrets: bytes, clock: Callable[[], int] | None = None
) -> tuple[Scheduler, UsageLedger, list[Namespace]]:
    """A scheduler with ample resources, a clock that advances 1 ms per read, and a namespace for each tenant's
    secret.
    """
    clock = clock or partial(next, itertools.count(0, 1_000_000))
    runner = FakeRunner()
    ledger = UsageLedger([tenant.name for tenant in tenants], {"full": 400})
    cache = KvCache((PageGroup("full", 400),), PAGE, 64, 0)
    scheduler = Scheduler(SchedulerLimits(4, 64, 40), tenants, cache, runner, clock, ledger=ledger)
    runner.scheduler = scheduler
    spaces = [make_namespace("m", "canonical-1", "f32", PAGE, secret=bytes([secret]) * 32) for secret in secrets]
    return scheduler, ledger, spaces


def test_prompt_token_is_computed_once_or_cached_without_pressure() -> None:
    scheduler, ledger, spaces = scheduler_of([Tenant("ada"), Tenant("bob")], b"ab")
    for number in range(1, 13):
        prompt = [1, 2, 3] * 4 + list(range(number))
        scheduler.submit(NewRequest(number, number % 2, prompt, spaces[number % 2], Sampling(number, seed=number)))
    while scheduler.step() is not None or scheduler.live:
        pass
    assert not ledger.find_problems()
    for tenant, name in enumerate(("ada", "bob")):
        usage, numbers = ledger.usage(name), range(2 - tenant, 13, 2)
        cached = usage["prompt_tokens_cached"]
        assert cached > 0 and cached % PAGE == 0
        assert usage["prompt_tokens_computed"] + cached == sum(12 + number for number in numbers)
        assert usage["tokens_generated"] == sum(numbers)
        assert usage["decode_inputs"] == sum(number - 1 for number in numbers)
        assert usage["requests_accepted"] == usage["requests_finished.length"] == 6
        assert "tokens_recomputed" not in usage and "parks" not in usage


def test_latencies_match_the_times_of_the_batches() -> None:
    """Requests come and are cancelled while six others wait for four slots; one has two choices, one is paused."""
    now, pick = [10**9], random.Random(3)
    scheduler, ledger, spaces = scheduler_of([Tenant("ada"), Tenant("bob")], b"ab", clock=lambda: now[0])
    arrived: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    wanted = {name: Counter[str]() for name in ("ada", "bob")}
    number = held = 0
    for step in range(400):
        now[0] += pick.randrange(10**5, 10**8)
        if step % 9 == 0 and number < 24:
            number += 1
            sampling = Sampling(pick.randrange(1, 14), seed=number, temperature=1.0, n=1 + (number % 6 == 0))
            prompt = [number] * pick.randrange(3, 30)
            scheduler.submit(NewRequest(number, number % 2, prompt, spaces[number % 2], sampling))
            arrived[number] = now[0]
            if number % 7 == 0:
                scheduler.cancel(number - 1)
        if step % 50 == 30:
            scheduler.hold(held := number, True)
        if step % 50 == 40:
            scheduler.hold(held, False)
        batch = scheduler.step()
        if batch is None:
            continue
        for key in zip(batch.requests.tolist(), batch.choice.tolist(), strict=True):
            kind, since = (INTER_TOKEN, last[key]) if key in last else (FIRST_TOKEN, arrived[key[0]])
            last[key] = now[0]
            (bucket,) = find_buckets(np.array([now[0] - since])).tolist()
            wanted["ada" if key[0] % 2 == 0 else "bob"][name_counter(kind, bucket)] += 1
    assert number == 24 and not scheduler.live and not ledger.find_problems()
    for name, counts in wanted.items():
        usage = ledger.usage(name)
        assert {key: count for key, count in usage.items() if is_latency(key)} == counts
        assert sum(counts.values()) == usage["tokens_generated"] > 50


def test_pages_shared_in_a_group_are_charged_to_the_group() -> None:
    quota = (PageQuota(group=1),)
    scheduler, ledger, spaces = scheduler_of([Tenant("ada", pages=quota), Tenant("bob", pages=quota)], b"aa")
    for number, answer in ((1, 30), (2, 10)):
        scheduler.submit(NewRequest(number, number - 1, [1, 2, 3] * 4, spaces[0], Sampling(answer, seed=1)))
        for _ in range(3):
            scheduler.step()
    scheduler.configure([*scheduler.tenants, Tenant("cy")])
    while scheduler.step() is not None or scheduler.live:
        assert not scheduler.check()
    group = ledger.usage(":group 1")
    assert list(group) == ["page_steps.full"] and group["page_steps.full"] % 2 == 0, "two pages of the prompt"
    assert not ledger.usage(":group 0") and not ledger.find_problems()
