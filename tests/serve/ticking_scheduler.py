"""A scheduler whose runner computes nothing and whose clock goes a millisecond a look."""

from __future__ import annotations

import itertools

from zinc_rt.perf.bench_sched import IdleRunner
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import Namespace, make_namespace
from zinc_rt.sched.scheduler import Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.usage.ledger import UsageLedger

PAGE = 4


def make_scheduler(names: list[str]) -> tuple[Scheduler, UsageLedger, list[Namespace]]:
    """A scheduler for these tenants, with ample pages, four slots and a context of 64."""
    now = itertools.count(0, 1_000_000)
    runner, ledger = IdleRunner(), UsageLedger(names, {"full": 400})
    cache = KvCache((PageGroup("full", 400),), PAGE, 64, 0)
    tenants = [Tenant(name) for name in names]
    scheduler = Scheduler(SchedulerLimits(4, 64, 40), tenants, cache, runner, lambda: next(now), ledger=ledger)
    runner.states = scheduler.records["state"]
    return scheduler, ledger, [make_namespace("m", "canonical-1", "f32", PAGE) for _ in names]


def run_scheduler(scheduler: Scheduler) -> None:
    while scheduler.step() is not None or scheduler.live:
        pass
