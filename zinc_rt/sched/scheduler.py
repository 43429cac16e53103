"""The scheduler of one model. `Scheduler.step` receives, schedules, submits, collects and commits one step.

    while (batch := scheduler.step()) is not None: deliver(batch)
    # until there is no work

It operates on arrays in plain Python, independent of the device. Scheduling decisions affect latency, never
results: a preempted, evicted or retried request is recomputed from its tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.admission import admit
from zinc_rt.sched.checks import invariants
from zinc_rt.sched.commit import commit_step
from zinc_rt.sched.configure import check_quotas, configure
from zinc_rt.sched.drafting import make_speculation
from zinc_rt.sched.kv.capsule import Capsule, drop, snapshot
from zinc_rt.sched.kv.kv_cache import KvCache
from zinc_rt.sched.kv.prefix import digest_chain, make_token_keys
from zinc_rt.sched.late import find_ready_late_rows, plan_late
from zinc_rt.sched.plan import Batch, Drawn, StepPlan
from zinc_rt.sched.planning import plan_step
from zinc_rt.sched.recovery import end_retry, recover_step
from zinc_rt.sched.request import RUNNING, NewRequest, Request, State, list_end_tokens, make_record
from zinc_rt.sched.speculation import Drafter
from zinc_rt.sched.state import SchedulerLimits, SchedulerState, StepTimes
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.sched.usage.ledger import RunnerCounts, UsageLedger

__all__ = ["Batch", "Drawn", "NewRequest", "Scheduler", "SchedulerLimits", "StepRunner", "TenantUsage"]

SWEPT = 64  # idle pages a step whose time to live is looked at


class StepRunner(Protocol):
    """The interface to the device. `counts`: its completed work, as counted by the device. `collect` waits until
    the step's deadline and raises the tier's errors; `reopen` returns whether it can continue after one."""

    @property
    def counts(self) -> RunnerCounts: ...

    def submit(self, plan: StepPlan) -> object: ...

    def collect(self, handle: object) -> Drawn: ...

    def reopen(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """A tenant's current resources. `pages`: by group, including promised pages; `service`: computed tokens
    divided by the weight."""

    slots: int
    parked: int
    waiting: int
    pages: tuple[int, ...]
    service: float


class Scheduler(SchedulerState):
    """The scheduler. `clock_ns`: monotonic. `vocab`: the number of token ids. `drafter`: proposes up to
    `limits.drafts` tokens for each decode. `submit`, `cancel`, `hold`,
    `resume` and `configure` may be called from any thread, all other methods from one."""

    def __init__(
        self,
        limits: SchedulerLimits,
        tenants: Sequence[Tenant],
        cache: KvCache,
        runner: StepRunner,
        clock_ns: Callable[[], int],
        *,
        ledger: UsageLedger | None = None,
        vocab: int = 0,
        drafter: Drafter | None = None,
    ) -> None:
        super().__init__(limits, tenants, cache, clock_ns, ledger, vocab)
        self.runner = runner
        if drafter is not None:
            self.speculation = make_speculation(self, drafter)
        self.failed: Callable[[Exception, StepPlan], None] = lambda error, plan: (
            None
        )  # hears of a step that failed
        self._mailbox: deque[Callable[[], None]] = deque()
        self._announced: dict[int, bool] = {}  # requests to pause or resume, in the mailbox

    # --- what others ask for

    def refuse(self, new: NewRequest) -> str:
        """Return why a request can never run, with the largest value that could, or "". It reads only quotas
        as mutable state."""
        length, maximum = len(new.tokens), new.sampling.max_tokens
        need = length - new.generated + maximum
        if not 0 <= new.tenant < len(self.tenants):
            return f"no tenant {new.tenant}: there are {len(self.tenants)}"
        tenant = self.tenants[new.tenant]
        if length < 1 or new.sampling.max_tokens < 1:
            return "a request needs at least one token, and must generate at least one"
        if need > self.limits.ctx + 1:  # the last is drawn, and not computed
            return f"{length} tokens and {maximum} to generate exceed the context of {self.limits.ctx}"
        most_slots = min(self.limits.slots, tenant.slots_max or self.limits.slots)
        if new.sampling.n > most_slots:
            return f"{new.sampling.n} choices need a slot each: the maximum is {most_slots}"
        if tenant.prefill is not None and length > tenant.prefill[1]:
            return f"{length} tokens exceed the burst of the tenant's rate: the maximum is {tenant.prefill[1]}"
        placed = need - 1
        if not self.cache.can_ever_fit(new.tenant, placed):
            fits = next((n for n in range(placed, 0, -1) if self.cache.can_ever_fit(new.tenant, n)), 0)
            return f"{placed} tokens exceed the tenant's page quota: at most {fits} fit"
        return ""

    def submit(self, new: NewRequest) -> Request:
        """Submit a request and return its first choice, read-only; may be called from any thread. Raises
        UsageError if it can never run. Expensive work is done here, not in a step."""
        new.sampling.check()
        if reason := self.refuse(new):
            raise UsageError(f"request {new.number}: {reason}")
        requests = self._make_requests(new)
        self._mailbox.append(lambda: self._add_requests(requests))
        return requests[0]

    def cancel(self, number: int, reason: str = "cancelled", *, choice: int | None = None) -> None:
        """Cancel a request, or one `choice`, at the next step boundary; may be called from any thread."""
        self._mailbox.append(lambda: self.end_number(number, State.CANCELLED, reason, choice=choice))

    def hold(self, number: int, held: bool = True) -> None:
        """Pause a request that no client reads; may be called from any thread.

        No later step contains it. The device skips its rows in a step that is planned but not submitted; the
        tokens of a submitted step are delivered. It loses its slot after a delay, later its pages, and ends with
        `client_too_slow` after `client_timeout_ns` or `client_timeout_steps`.
        """
        self._announced[number] = held
        self._mailbox.append(lambda: self._hold(number, held))

    def resume(self, number: int) -> None:
        """Resume a paused request; may be called from any thread."""
        self.hold(number, False)

    def configure(self, tenants: Sequence[Tenant]) -> Future[None]:
        """Change quotas, weights and rates, and append new tenants, at the next step boundary; may be called
        from any thread.

        The future raises UsageError, and nothing changes, if a quota cannot be satisfied.
        """
        check_quotas(self, tenants)
        future: Future[None] = Future()

        def do() -> None:
            try:
                configure(self, tenants)
            except UsageError as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        self._mailbox.append(do)
        return future

    def find_next_event(self) -> int | None:
        """Return the time of the next timer, until which the engine may sleep. None: only a message can
        create work."""
        return self.clock_ns() if self._mailbox else self.timers.find_next_ns()

    def usage(self, tenant: int) -> TenantUsage:
        """Return a tenant's current resources."""
        return TenantUsage(
            self.bound[tenant],
            self.parked[tenant],
            self.queues.waiting(tenant),
            tuple(pool.count_charge(tenant) for pool in self.cache.pools),
            self.service.to_tokens(tenant),
        )

    def check(self) -> list[str]:
        """Return the violated invariants by number."""
        return invariants.find_violations(self)

    # --- sequences to go on from

    def snapshot(self, number: int, choice: int = 0) -> Capsule | None:
        """Return a capsule of a request between two steps, for `NewRequest.capsule`, or None if it has computed
        nothing or waits for a token mask, or no page or row is free. Free it with `drop_capsule`.
        """
        request = next((item for item in self.live.get(number, ()) if item.choice == choice), None)
        if request is None or request.holding is None or not request.computed or request in self.late:
            return None
        self.sync(request)
        bound = request.slot >= 0
        tokens = self.slots.history[request.slot] if bound else request.tokens
        taken = snapshot(self.cache, request.holding, tokens)
        if taken is None:
            return None
        capsule, copies = taken
        self.copies += copies
        self.sync_rows(request)
        self.capsules[capsule] = None
        return capsule

    def drop_capsule(self, capsule: Capsule) -> None:
        """Free a capsule."""
        if self.capsules.pop(capsule, capsule) is None:
            drop(self.cache, capsule)

    # --- a step

    def step(self) -> Batch | None:
        """Run one step: receive, schedule, submit, collect, commit. Return None if there is nothing to
        compute.

        Every token of `zinc-rt run`, `serve` and `LLM` is generated here.
        """
        began_ns = self.clock_ns()
        self.receive()
        plan = (plan_late(self) if self.late else None) or self.schedule()
        if not plan.tokens and not plan.rows:
            return self._make_empty_batch() or self._wait_for_masks()
        planned_ns = self.clock_ns()
        if self._announced and plan.tokens:
            self._hold_planned()
        try:
            handle = self.runner.submit(plan)
            drawn = self.runner.collect(handle)
        except Exception as error:
            return self._recover(error, plan)
        computed_ns = self.clock_ns()
        if plan.tokens:
            took_ns = computed_ns - planned_ns
            self.cost.observe(plan.prompt_tokens, plan.decodes, plan.context, took_ns, plan.further_decode_tokens)
            if self.speculation is not None and not plan.prompts:
                self.speculation.observe(plan.decodes, plan.tokens, took_ns)
        batch = self.commit(plan, drawn)
        if self.observers:
            times = StepTimes(began_ns, planned_ns, computed_ns, self.clock_ns())
            for observer in self.observers:
                observer.stepped(plan, batch, times)
        return batch

    def receive(self) -> None:
        """Process the messages that arrived since the last call."""
        self.now_ns = self.clock_ns()
        while self._mailbox:
            self._mailbox.popleft()()
        while self.held:
            request, since = next(iter(self.held.items()))
            if self.counts.steps - since < self.limits.client_timeout_steps:
                break
            self.end(request, State.CANCELLED, "client_too_slow")

    def schedule(self) -> StepPlan:
        """Run due timers, admit requests to slots and pages, and plan the next step. If no request can
        continue and one was preempted for that reason, its slot and pages are reassigned at once."""
        while True:
            parked = self.counts.parked
            self.timers.run(self.now_ns)
            if self.sweeps:
                self.cache.sweep(self.now_ns, SWEPT)
            admit(self)
            plan = plan_step(self)
            if plan.tokens or self.counts.parked == parked:
                return plan

    def _recover(self, error: Exception, plan: StepPlan) -> Batch:
        """Return the requests of a failed step to a queue, or end them. Raises `error` if the runner cannot
        continue.
        """
        self.failed(error, plan)
        reopened = self.runner.reopen()
        recover_step(self, plan, reopened=reopened)
        if not reopened:
            raise error
        return self._make_empty_batch() or Batch(self.counts.steps)  # there is more to do now, not later

    def commit(self, plan: StepPlan, drawn: Drawn) -> Batch:
        """Commit the sampled tokens of a step."""
        batch = commit_step(self, plan, drawn, self.runner.counts)
        if self.probation:
            end_retry(self, drew=plan.rows > 0)
        every = self.limits.check_every
        if every and not self.counts.steps % every and (result := self.check()):
            raise AssertionError("; ".join(result))
        return batch

    def _wait_for_masks(self) -> Batch | None:
        """Wait briefly for the masks of late rows whose clients are reading. Return None if there are none."""
        rows = find_ready_late_rows(self)
        if not rows:
            return None
        self.fills.settle(self.masked[row.request.slot] for row in rows)
        return Batch(self.counts.steps)

    def _make_empty_batch(self) -> Batch | None:
        ended, self.ended = tuple(self.ended), []
        return Batch(self.counts.steps, ended=ended) if ended else None

    # --- messages

    def _make_requests(self, new: NewRequest) -> list[Request]:
        """Return its choices, which differ only in their number."""
        tokens, decoded_from = np.array(new.tokens, np.int32), self._find_first_decoded(new)
        digests = new.digests
        if digests is None:
            keys = make_token_keys(tokens, 0, decoded_from)
            digests = digest_chain(keys, self.cache.page_tokens, new.within)
        lowest = self.tenants[new.tenant].priority
        priority = lowest if new.priority is None else Priority(max(lowest, new.priority))
        sampling = new.sampling.with_seed()
        ends, requests = list_end_tokens(sampling, new.end_tokens), []
        for choice in range(new.choice, new.choice + sampling.n):
            row = make_record(new, sampling, priority, choice)
            mask = None if new.mask is None else new.mask.fork()
            request = Request(
                new.number, new.tenant, priority, tokens, len(tokens) - new.generated, sampling, new.within,
                digests, row, self.now_ns, choice, new.session, new.deadline_ns, ends, new.capsule, mask,
                drafts=new.drafts, decoded_from=decoded_from,
            )  # fmt: skip
            requests.append(request)
        return requests

    def _find_first_decoded(self, new: NewRequest) -> int | None:
        """Return the position of a request's first token in the ordering of decodes, None if prompts have the same
        ordering. A capsule's tokens keep their orderings."""
        if not self.limits.prefill_ordering:
            return None
        if new.capsule is not None:
            first = new.capsule.decoded_from
            if first is not None and first < new.capsule.computed:
                return first
        return len(new.tokens) - new.generated if new.decoded_from is None else new.decoded_from

    def _add_requests(self, requests: list[Request]) -> None:
        first = requests[0]
        tenant = first.tenant
        if first.number in self.live:
            raise UsageError(f"request {first.number} already exists")
        if not self.busy(tenant):
            self.service.lift(tenant, (t for t in range(len(self.tenants)) if self.busy(t)))
        self.live[first.number] = requests
        for request in requests:
            request.arrived_ns = self.now_ns
            self.notify("arrive", request, counter="requests_accepted")
        if first.deadline_ns is not None:
            self.timers.at(
                first.deadline_ns,
                lambda: self.end_number(first.number, State.EXPIRED, "deadline"),
                lambda: bool(self.live.get(first.number)),
            )
        first.siblings = requests[1:]
        self.queue(first, first=False)

    def _hold_planned(self) -> None:
        """Set backpressure for requests that were paused since the step was planned."""
        for number, held in self._announced.copy().items():
            for request in self.live.get(number, ()):
                request.set_backpressure(held or request.held)

    def _hold(self, number: int, held: bool) -> None:
        self._announced.pop(number, None)
        for request in self.live.get(number, ()):
            if held and not request.held:
                self._begin_hold(request)
            elif not held and request.held:
                self._end_hold(request)

    def _begin_hold(self, request: Request) -> None:
        request.held_ns = since = self.now_ns
        request.set_backpressure(True)
        self.held[request] = self.counts.steps

        def is_still_held() -> bool:
            return request.held_ns == since

        self.timers.at(
            since + self.limits.client_timeout_ns,
            lambda: self.end(request, State.CANCELLED, "client_too_slow"),
            lambda: is_still_held() and request in self.live.get(request.number, ()),
        )
        if request.state in RUNNING:
            self.slots.leave_out(request, True)
            self.timers.at(
                since + self.limits.hold_ns,
                lambda: self.park(request),
                lambda: is_still_held() and request.state in RUNNING,
            )
        elif request.ticket >= 0:
            self.unqueue(request)
            self.aside[request] = None

    def _end_hold(self, request: Request) -> None:
        request.held_ns = None
        request.set_backpressure(False)
        del self.held[request]
        if request in self.aside:
            del self.aside[request]
            self.queue(request, first=True)
        elif request.state is State.DECODE:
            out = request.left_out > 0 or request in self.late
            self.slots.leave_out(request, out)  # whose page is full gets one, or is left out
