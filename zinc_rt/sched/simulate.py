"""Traffic in virtual time: the real scheduler over a runner that computes nothing and takes as long as a predicted
card would. Hours of a device's day in seconds, the same for the same seed.

    seen = simulate(arrivals, tenants, SimulationSettings(slots=16), PREDICTED)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.sampling import Sampling
from zinc_rt.sched.arrival import Arrival
from zinc_rt.sched.invariants import violations
from zinc_rt.sched.kv_cache import KvCache, PageGroup
from zinc_rt.sched.ledger import RunnerCounts
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.prefix import namespace
from zinc_rt.sched.scheduler import Batch, NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.simulation_log import SimulationLog
from zinc_rt.sched.step_cost import NS, StepCost
from zinc_rt.sched.tenant import Tenant

PAGE_TOKENS = 16
POLICIES = ("fair", "fcfs")
VOCABULARY_BITS = 17


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """`pages` None: enough for every slot at once. `interactive_step_tokens` None: what keeps a predicted step
    near one of decodes alone. `check_every`: steps from one look at the invariants to the next. At `most_steps`,
    or when `most_seconds` of virtual time have passed, what is left is cancelled."""

    slots: int = 16
    ctx: int = 32_768
    pages: int | None = None
    step_tokens: int = 512
    interactive_step_tokens: int | None = None
    policy: str = "fair"
    seed: int = 1
    check_every: int = 16
    most_steps: int | None = None
    most_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BrokenStep:
    """The step at which something did not hold, and what."""

    step: int
    found: tuple[str, ...]
    where: str = ""  # of an exception: its traceback


@dataclass(slots=True)
class SimulatedRun:
    """What a simulation saw. `left`: what was still held when everything had ended; `cut`: requests that a limit
    of the run cancelled."""

    settings: SimulationSettings
    tenants: Sequence[Tenant]
    log: SimulationLog
    seconds: float = 0.0  # virtual
    steps: int = 0
    checks: int = 0
    parked: int = 0
    evicted: int = 0
    computed_tokens: int = 0
    cut: int = 0
    broken: BrokenStep | None = None
    left: list[str] = field(default_factory=list)


def simulate(
    arrivals: Sequence[Arrival],
    tenants: Sequence[Tenant],
    settings: SimulationSettings,
    cost: StepCost,
    *,
    advance: Callable[[int], None] = lambda requests: None,
) -> SimulatedRun:
    """Raises UsageError for tenants that contradict each other and for a request that could never run.
    `advance(n)`: n more requests have ended."""
    return Simulation(arrivals, tenants, settings, cost, advance).run()


def pages_of(settings: SimulationSettings) -> int:
    return settings.pages or settings.slots * -(-settings.ctx // PAGE_TOKENS)


def drawn(seed: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Token ids: a function of a text's seed and the place in it, as no model would write it. Both u64 [n]."""
    mixed = (seed + position + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(64 - VOCABULARY_BITS)).astype(np.int32)


class PredictedRunner:
    """Computes nothing: its clock goes on by what the step would cost, its tokens are `drawn`."""

    def __init__(self, cost: StepCost, seen: Callable[[StepPlan], None]) -> None:
        self.cost, self.seen = cost, seen
        self.now_ns = 0
        self.counts = RunnerCounts()
        self.records: np.ndarray = np.empty(0)  # the scheduler's

    def submit(self, plan: StepPlan) -> StepPlan:
        self.seen(plan)
        return plan

    def collect(self, handle: object) -> Drawn:
        plan = handle
        assert isinstance(plan, StepPlan)
        context = int(plan.position[: plan.decodes].sum()) + plan.decodes + sum(each.last for each in plan.prompts)
        took_ns = self.cost.nanoseconds(plan.tokens, context)
        self.now_ns += took_ns
        bound = int(np.count_nonzero(self.records["state"]))
        self.counts = self.counts.after(plan.tokens, plan.rows, bound, took_ns)
        seeds = self.records["seed"][plan.row_slot[: plan.rows]]
        tokens = drawn(seeds, plan.row_position[: plan.rows].astype(np.uint64))
        return Drawn(tokens, np.full(plan.rows, -1, np.int32))

    def reopen(self) -> bool:
        return False


class Simulation:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        tenants: Sequence[Tenant],
        settings: SimulationSettings,
        cost: StepCost,
        advance: Callable[[int], None],
    ) -> None:
        self.settings, self.tenants, self.advance = settings, tenants, advance
        self.arrivals = sorted(arrivals, key=lambda each: each.at)
        self.index = {tenant.name: number for number, tenant in enumerate(tenants)}
        self.runner = PredictedRunner(cost, self._planned)
        self.scheduler = self._scheduler(cost)
        self.spaces = [
            namespace("simulated", "none", "f32", PAGE_TOKENS, secret=number.to_bytes(32, "little"))
            for number in range(len(tenants))
        ]
        self.log = SimulationLog(self.arrivals, tenants, settings.slots)
        self.texts: dict[tuple[str, str], int] = {}
        self.next = 0  # of the arrivals
        self.last_end_ns = 0  # when the last step ended
        self.seen = SimulatedRun(settings, tenants, self.log)

    def _scheduler(self, cost: StepCost) -> Scheduler:
        """First come, first served is a scheduler that takes everybody for one tenant of one class."""
        settings = self.settings
        cache = KvCache((PageGroup("full", pages_of(settings)),), PAGE_TOKENS, settings.step_tokens)
        limits = SchedulerLimits(
            settings.slots,
            settings.ctx,
            settings.step_tokens,
            settings.interactive_step_tokens or cost.interactive_tokens(settings.slots),
        )
        tenants = self.tenants if settings.policy == "fair" else [Tenant("everybody")]
        scheduler = Scheduler(limits, tenants, cache, self.runner, lambda: self.runner.now_ns)
        self.runner.records = scheduler.records
        return scheduler

    def run(self) -> SimulatedRun:
        self._refuse_what_never_runs()
        try:
            while self._step():
                pass
            if self.seen.broken is None:
                self._drain()
        except Exception as error:  # a scheduler that fails is what this is to find: the report says at which step
            self.seen.broken = BrokenStep(
                self.seen.steps, (f"{type(error).__name__}: {error}",), traceback.format_exc()
            )
        counts = self.scheduler.counts
        self.seen.seconds = self.runner.now_ns / NS
        self.seen.parked, self.seen.evicted = counts.parked, counts.evicted
        self.seen.computed_tokens = counts.computed
        return self.seen

    def _refuse_what_never_runs(self) -> None:
        for number, each in enumerate(self.arrivals):
            if each.tenant not in self.index:
                raise UsageError(f"{_named(each)}: no tenant {each.tenant!r}", next="name it among the tenants")
            if why := self.scheduler.refuse(self._request(number, tokens=np.zeros(each.prompt, np.int32))):
                raise UsageError(f"{_named(each)}: {why}", next="a shorter request, or more --pages")

    def _request(self, number: int, tokens: np.ndarray | None = None) -> NewRequest:
        each = self.arrivals[number]
        seed = self._seed(each, number)
        if tokens is None:
            tokens = drawn(np.array([seed], np.uint64), np.arange(each.prompt, dtype=np.uint64))
        fair = self.settings.policy == "fair"
        tenant = self.index[each.tenant]
        return NewRequest(
            number + 1,
            tenant if fair else 0,
            tokens,
            self.spaces[tenant],
            Sampling(each.output, seed=seed),
            each.priority if fair else None,
        )

    def _seed(self, each: Arrival, number: int) -> int:
        """Of the text that the request is a piece of: its own, or that of its prefix."""
        text = (each.tenant, each.prefix) if each.prefix else ("", str(number))
        return (self.texts.setdefault(text, len(self.texts)) + 1) << 32

    # --- time goes on

    def _step(self) -> bool:
        """One step, or the wait until there is something to do; False where nothing is left, or nothing more is to
        be done."""
        if self._is_over():
            return False
        self._submit_due()
        batch = self.scheduler.step()
        if batch is None:
            return self._wait()
        self._commit(batch)
        return self.seen.broken is None

    def _is_over(self) -> bool:
        settings = self.settings
        if settings.most_steps is not None and self.seen.steps >= settings.most_steps:
            return True
        return settings.most_seconds is not None and self.runner.now_ns >= settings.most_seconds * NS

    def _submit_due(self) -> None:
        while self.next < len(self.arrivals) and self.arrivals[self.next].at * NS <= self.runner.now_ns:
            self.scheduler.submit(self._request(self.next))
            # one that came while the last step ran came before its end
            during = self.log.arrived_ns[self.next] < self.last_end_ns
            self.log.arrived(self.next, self.seen.steps - int(during))
            self.next += 1

    def _wait(self) -> bool:
        """To the next arrival."""
        if self.next < len(self.arrivals):
            self.runner.now_ns = max(self.runner.now_ns, int(np.ceil(self.arrivals[self.next].at * NS)))
            return True
        if self.scheduler.live:
            self.runner.now_ns += NS  # a rate's bucket fills
            return True
        return False

    def _planned(self, plan: StepPlan) -> None:
        self.seen.steps += 1
        self.log.planned(plan, self.scheduler.slots.requests, self.seen.steps)

    def _commit(self, batch: Batch) -> None:
        self.last_end_ns = self.runner.now_ns
        made = batch.requests - 1
        self.log.made(made, self.runner.now_ns, self.seen.steps)
        for number, _, reason in batch.ended:
            self.log.ended(number - 1, reason, self.runner.now_ns)
        self.advance(len(batch.ended))
        if self.seen.steps % self.settings.check_every == 0:
            self._check()

    def _check(self) -> None:
        self.seen.checks += 1
        found = violations(self.scheduler)
        if found:
            self.seen.broken = BrokenStep(self.seen.steps, tuple(found))

    def _drain(self) -> None:
        """Cancel what a limit has left over, and see that nothing is held any more."""
        for number in list(self.scheduler.live):
            self.scheduler.cancel(number)
            self.seen.cut += 1
        while (batch := self.scheduler.step()) is not None:
            self._commit(batch)
        self._check()
        self.seen.left = list(held(self.scheduler))


def held(scheduler: Scheduler) -> Iterator[str]:
    """What an idle scheduler should not have."""
    if scheduler.live:
        yield f"{len(scheduler.live)} requests are live"
    if scheduler.queues.count:
        yield f"{scheduler.queues.count} are queued"
    if bound := sum(1 for _ in scheduler.running()):
        yield f"{bound} slots are bound"
    for group, pool in zip(scheduler.cache.groups, scheduler.cache.pools, strict=True):
        if pool.pool.used:
            yield f"{pool.pool.used} pages of group {group.name} are in use"
    rows = scheduler.cache.rows
    if rows is not None and rows.used:
        yield f"{rows.used} state rows are in use"
    for tenant, row in enumerate(scheduler.tenants):
        if charge := sum(pool.charge(tenant) for pool in scheduler.cache.pools):
            yield f"tenant {row.name} is charged {charge} pages"


def _named(each: Arrival) -> str:
    return f"line {each.line}" if each.line else f"the request of {each.tenant} at {each.at:g} s"
