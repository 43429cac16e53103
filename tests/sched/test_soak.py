"""Hundreds of requests through four slots and too few pages: nothing is lost, each ends as it would alone."""

from __future__ import annotations

import random

import pytest
from scheduler_machine import (
    DraftingSchedulerMachine,
    PlainSchedulerMachine,
    RecurrentDraftingSchedulerMachine,
    SchedulerMachine,
)
from support import Counts

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.checks.drafters import KINDS
from zinc_rt.sched.checks.invariants import find_violations
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(
    "machine",
    [SchedulerMachine, PlainSchedulerMachine, DraftingSchedulerMachine, RecurrentDraftingSchedulerMachine],
)
def test_soak_finishes(machine: type[SchedulerMachine], slow_counts: Counts) -> None:
    for seed in range(slow_counts(2, 200)):
        run_soak(machine, random.Random(seed), 150)


def run_soak(machine: type[SchedulerMachine], choice: random.Random, requests: int) -> None:
    m = machine()
    while m.number < requests or m.scheduler.live:
        what = choice.random()
        m.drafter.kind = choice.choice(KINDS)
        if what < 0.25 and m.number < requests and len(m.scheduler.live) < 40:
            submit_request(m, choice)
        elif what < 0.27:
            m.scheduler.cancel(m.number - choice.randint(1, 20))
        elif what < 0.30:
            m.scheduler.hold(m.number - choice.randint(1, 20), True)
        elif what < 0.32:
            m.hold_after_planning(choice.randint(1, 20), choice.random() < 0.5)
        elif what < 0.38:
            for number in list(m.scheduler.live):
                m.scheduler.hold(number, False)
        else:
            m.one_step(choice.choice([1, 10, 10, 10, 500, 30_000]))
        assert not find_violations(m.scheduler)
    counts = m.scheduler.counts
    assert counts.parked > 2 and counts.evicted > 5 and m.cache.prefix.counts.hit > 50, "there was no pressure"
    speculation = m.scheduler.speculation
    assert speculation is None or 0 < speculation.accepted < speculation.drafted
    m.drain()


def submit_request(m: SchedulerMachine, choice: random.Random) -> None:
    m.number += 1
    prompt = [1] * choice.choice([0, 4, 8, 12]) + [choice.randint(0, 1) for _ in range(choice.randint(1, 9))]
    tenant, limit, seed = choice.randint(0, 3), choice.randint(1, 14), choice.randint(0, 3)
    choices = choice.choice([1, 1, 1, 2])
    sampling = Sampling(limit, seed=seed, n=choices)
    try:
        m.scheduler.submit(NewRequest(m.number, tenant, prompt, m.spaces[tenant], sampling))
    except UsageError:
        return
    m.asked[m.number] = (len(prompt), limit, seed, choices)
    m.generated.update({(m.number, index): [] for index in range(choices)})
