"""Simulate traffic in virtual time: the real scheduler with a runner that computes nothing and whose steps
take the predicted time of a card. It covers hours of device time in seconds, and is deterministic for a
seed.

    seen = simulate(arrivals, tenants, SimulationSettings(slots=16), PREDICTED)
    # a SimulatedRun
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.slot_record import RECORD
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import Batch, Drawn, StepPlan
from zinc_rt.sched.request import NewRequest
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import Scheduler, SchedulerLimits
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.simulation_log import NEVER, SimulationLog
from zinc_rt.sched.state import SchedulerCounts, describe_limit_changes
from zinc_rt.sched.step_cost import NS, StepCost
from zinc_rt.sched.step_trace import StepRecorder, StepTrace
from zinc_rt.sched.tenant import CLASSES, Classes, Tenant
from zinc_rt.sched.usage.ledger import RunnerCounts, UsageLedger

PAGE_TOKENS = 16
GROUP = "full"
VOCABULARY_BITS = 17
TEXT_BITS = 32  # of a seed: the places of a text
LATER_NS = 7200 * NS  # beyond all ages and times to live


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings. `pages` None: enough for all slots. `classes`: priority classes with their latency budgets.
    `check_every`: steps between checks of the invariants. After `most_steps`, or `most_seconds` of virtual time,
    the remaining requests are cancelled. `prefill_ordering`: see SchedulerLimits."""

    slots: int = 16
    ctx: int = 32_768
    pages: int | None = None
    step_tokens: int = 512
    classes: Classes = field(default_factory=lambda: CLASSES)
    policy: str = "fair"
    seed: int = 1
    check_every: int = 32
    most_steps: int | None = None
    most_seconds: float | None = None
    prefill_ordering: str = ""


@dataclass(frozen=True, slots=True)
class BrokenStep:
    """The step at which an invariant was violated, and the violations."""

    step: int
    problems: tuple[str, ...]
    where: str = ""  # of an exception: its traceback


@dataclass(slots=True)
class SimulatedRun:
    """The result of a simulation. `counts`: the scheduler's; `shortcuts`: where its limits are not the
    product's defaults; `leaked`: resources still in use after the end; `cut`: requests cancelled by
    a limit of the run; `unbalanced`: differences between the ledger and the log; `trace`: the last steps."""

    settings: SimulationSettings
    tenants: Sequence[Tenant]
    log: SimulationLog
    counts: SchedulerCounts
    shortcuts: Sequence[str] = ()
    seconds: float = 0.0  # virtual
    steps: int = 0
    checks: int = 0
    cut: int = 0
    broken: BrokenStep | None = None
    leaked: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)
    trace: StepTrace | None = None


def simulate(
    arrivals: Sequence[Arrival],
    tenants: Sequence[Tenant],
    settings: SimulationSettings,
    cost: StepCost,
    *,
    advance: Callable[[int], None] = lambda requests: None,
    traced: bool = False,
) -> SimulatedRun:
    """Run the simulation. Raises UsageError for contradictory tenants and for a request that could never run.
    `advance(n)`: n more requests have ended. `traced`: keep the last steps for a timeline."""
    simulation = Simulation(arrivals, tenants, settings, cost, advance)
    if traced:
        simulation.seen.trace = StepRecorder(simulation.scheduler).trace
    return simulation.run()


def count_pages(settings: SimulationSettings) -> int:
    return settings.pages or settings.slots * -(-settings.ctx // PAGE_TOKENS)


def draw_token(seed: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return token ids as a function of a text's seed (u64) and the position. The ids do not resemble model
    output."""
    mixed = (seed + position.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(64 - VOCABULARY_BITS)).astype(np.int32)


class PredictedRunner:
    """Computes nothing: its clock advances by the predicted step time, its tokens come from `draw_token`."""

    def __init__(self, cost: StepCost, seen: Callable[[StepPlan], None]) -> None:
        self.cost, self.seen = cost, seen
        self.now_ns = self.took_ns = 0  # of the last step
        self.counts = RunnerCounts()
        self.records = np.zeros(0, RECORD)  # the scheduler's, when there is one

    def submit(self, plan: StepPlan) -> StepPlan:
        self.seen(plan)
        return plan

    def collect(self, handle: object) -> Drawn:
        plan = handle
        assert isinstance(plan, StepPlan)
        rows, bound = plan.rows, int(np.count_nonzero(self.records["state"]))
        self.took_ns = took_ns = self.cost.nanoseconds(
            plan.prompt_tokens, plan.decodes, plan.context, plan.further_decode_tokens
        )
        self.now_ns += took_ns
        self.counts = self.counts.after(plan.tokens, rows, bound, took_ns)
        tokens = draw_token(self.records["seed"][plan.row_slot[:rows]], plan.row_position[:rows])
        return Drawn(tokens, np.full(rows, -1, np.int32))

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
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.at)
        self.index = {tenant.name: number for number, tenant in enumerate(tenants)}
        self.runner = PredictedRunner(cost, self._record_plan)
        # first come, first served is a scheduler that takes everybody for one tenant of one class
        self.accounts = tenants if settings.policy == "fair" else [Tenant("everybody")]
        self.ledger = UsageLedger([tenant.name for tenant in self.accounts], {GROUP: count_pages(settings)})
        self.scheduler = self._create_scheduler(cost)
        self.spaces = [
            make_namespace("simulated", "none", "f32", PAGE_TOKENS, secret=_make_secret(number, tenant))
            for number, tenant in enumerate(tenants)
        ]
        self.bounded = [number for number, tenant in enumerate(tenants) if any(q.most for q in tenant.pages)]
        self.log = SimulationLog(self.arrivals, tenants, settings.slots)
        self.texts: dict[str, int] = {}
        self.next = 0  # of the arrivals
        self.last_end_ns = 0  # when the last step ended
        limits = self.scheduler.limits
        self.seen = SimulatedRun(
            settings, tenants, self.log, self.scheduler.counts, describe_limit_changes(limits)
        )

    def _create_scheduler(self, cost: StepCost) -> Scheduler:
        settings = self.settings
        cache = KvCache((PageGroup(GROUP, count_pages(settings)),), PAGE_TOKENS, settings.step_tokens)
        limits = SchedulerLimits(
            settings.slots,
            settings.ctx,
            settings.step_tokens,
            classes=settings.classes,
            cost=cost,
            prefill_ordering=settings.prefill_ordering,
        )
        scheduler = Scheduler(
            limits, self.accounts, cache, self.runner, lambda: self.runner.now_ns, ledger=self.ledger
        )
        self.runner.records = scheduler.records
        return scheduler

    def run(self) -> SimulatedRun:
        self._refuse_impossible_requests()
        seen = self.seen
        try:
            while self._step():
                pass
            seen.seconds = self.runner.now_ns / NS
            if seen.broken is None:
                self._drain()
        except Exception as error:  # a scheduler that fails is what this is to find: the report says at which step
            seen.seconds = self.runner.now_ns / NS
            text = f"{type(error).__name__}: {error}"
            seen.broken = BrokenStep(seen.steps, (text,), traceback.format_exc())
        return seen

    def _refuse_impossible_requests(self) -> None:
        checked = set()
        for number, arrival in enumerate(self.arrivals):
            kind = arrival.tenant, arrival.prompt, arrival.output
            if kind in checked:
                continue
            checked.add(kind)
            if arrival.tenant not in self.index:
                raise UsageError(
                    f"{_describe_arrival(arrival)}: unknown tenant {arrival.tenant!r}",
                    next="add it to the tenants",
                )
            if reason := self.scheduler.refuse(
                self._make_request(number, tokens=np.zeros(arrival.prompt, np.int32))
            ):
                raise UsageError(
                    f"{_describe_arrival(arrival)}: {reason}",
                    next="shorten the request, or raise --ctx or --pages",
                )

    def _make_request(self, number: int, tokens: np.ndarray | None = None) -> NewRequest:
        arrival = self.arrivals[number]
        seed = self._make_seed(arrival, number)
        if tokens is None:
            tokens = draw_token(np.array([seed], np.uint64), np.arange(arrival.prompt))
        fair = self.settings.policy == "fair"
        tenant = self.index[arrival.tenant]
        return NewRequest(
            number + 1,
            tenant if fair else 0,
            tokens,
            self.spaces[tenant],
            Sampling(max_tokens=arrival.output, seed=seed, ignore_eos=True),
            arrival.priority if fair else None,
            session=self.texts.get(arrival.prefix, 0) if self.tenants[tenant].session_pin_pages else 0,
        )

    def _make_seed(self, arrival: Arrival, number: int) -> int:
        """Return the seed of the text that the request belongs to: its own, or its prefix's for any tenant."""
        if not arrival.prefix:
            return number << TEXT_BITS
        text = self.texts.setdefault(arrival.prefix, len(self.arrivals) + len(self.texts))
        return text << TEXT_BITS

    # --- time goes on

    def _step(self) -> bool:
        """Run one step, or wait until there is work; return False if no work is left or a limit is reached."""
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
            self.scheduler.submit(self._make_request(self.next))
            # one that came while the last step ran came before its end
            during = self.log.arrived_ns[self.next] < self.last_end_ns
            self.log.record_arrival(self.next, self.seen.steps - int(during))
            self.next += 1

    def _wait(self) -> bool:
        """Advance to the next arrival or to the scheduler's next timer; return False if there is neither."""
        due = [self.arrivals[self.next].at * NS] if self.next < len(self.arrivals) else []
        if self.scheduler.live and (event := self.scheduler.find_next_event()) is not None:
            due.append(event)
        if not due:
            return False
        self.runner.now_ns = max(self.runner.now_ns, math.ceil(min(due)))
        return True

    def _record_plan(self, plan: StepPlan) -> None:
        self.seen.steps += 1
        self.log.record_plan(plan, self.scheduler.slots.requests, self.seen.steps)
        if self.settings.policy == "fair":
            for tenant in self.bounded:
                charge = max(pool.count_charge(tenant) for pool in self.scheduler.cache.pools)
                self.log.most_pages[tenant] = max(self.log.most_pages[tenant], charge)

    def _commit(self, batch: Batch) -> None:
        self.last_end_ns = self.runner.now_ns
        self.log.stepped(self.scheduler.plan, self.runner.took_ns)
        self.log.generated(batch.requests - 1, self.runner.now_ns, self.seen.steps)
        for number, _, reason in batch.ended:
            self.log.ended(number - 1, reason, self.runner.now_ns)
        self.advance(len(batch.ended))
        if self.seen.steps % self.settings.check_every == 0:
            self._check()

    def _check(self) -> None:
        self.seen.checks += 1
        result = self.scheduler.check()
        if result:
            self.seen.broken = BrokenStep(self.seen.steps, tuple(result))

    def _drain(self) -> None:
        """Cancel the remaining requests after a limit, and check that no resource is in use."""
        for number in list(self.scheduler.live):
            self.scheduler.cancel(number)
            self.seen.cut += 1
        while (batch := self.scheduler.step()) is not None:
            self._commit(batch)
        self.runner.now_ns += LATER_NS  # what waits for a time that nobody needs any more is gone by then
        self.scheduler.step()
        self._check()
        self.seen.leaked = list(find_leaks(self.scheduler))
        self.seen.unbalanced = [*self.ledger.find_problems(), *self._find_ledger_differences()]

    def _find_ledger_differences(self) -> Iterator[str]:
        """Return where the ledger's counts differ from the log, which counts requests independently."""
        log = self.log
        whose = log.tenant if self.settings.policy == "fair" else np.zeros_like(log.tenant)
        booked = self.ledger.take().usage
        for counter, column in (
            ("tokens_generated", log.made_tokens),
            ("requests_accepted", log.arrived_step != NEVER),
        ):
            seen = np.bincount(whose, column, minlength=len(self.accounts))
            for account, count in zip(self.accounts, seen.astype(int).tolist(), strict=True):
                result = booked.get((account.name, counter), 0)
                if result != count:
                    yield f"{account.name}: {counter} is {result}, and {count} were seen"


def _make_secret(number: int, tenant: Tenant) -> bytes:
    """Return what keeps prefixes apart: a secret of the tenant, or of the group that may share pages."""
    groups = [quota.group for quota in tenant.pages if quota.group is not None]
    return (groups[0] + (1 << 32) if groups else number).to_bytes(32, "little")


def find_leaks(scheduler: Scheduler) -> Iterator[str]:
    """Return the resources that an idle scheduler should not have in use."""
    if scheduler.live:
        yield f"{len(scheduler.live)} requests are live"
    if scheduler.queues.count:
        yield f"{scheduler.queues.count} are queued"
    if bound := sum(1 for _ in scheduler.running()):
        yield f"{bound} slots are bound"
    if scheduler.find_next_event() is not None:
        yield "timers or messages are pending"
    for group, pool in zip(scheduler.cache.groups, scheduler.cache.pools, strict=True):
        if pool.pool.used:
            yield f"{pool.pool.used} pages of group {group.name} are in use"
    rows = scheduler.cache.rows
    if rows is not None and rows.used:
        yield f"{rows.used} state rows are in use"
    for tenant, row in enumerate(scheduler.tenants):
        if charge := sum(pool.count_charge(tenant) for pool in scheduler.cache.pools):
            yield f"tenant {row.name} is charged {charge} pages"


def _describe_arrival(arrival: Arrival) -> str:
    return f"line {arrival.line}" if arrival.line else f"the request of {arrival.tenant} at {arrival.at:g} s"
