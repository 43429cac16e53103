"""One model's scheduler: whose turn it is, what a step computes, what came of it. Plain Python; it knows no
device.

    while (batch := scheduler.step()) is not None: deliver(batch)

A wrong schedule is a slow answer, never a wrong one: whatever is parked, evicted or run again is computed from its
tokens.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.sched import preempt
from zinc_rt.sched.bucket import Bucket
from zinc_rt.sched.kv_cache import KvCache
from zinc_rt.sched.pages import PageQuota
from zinc_rt.sched.plan import StepPiece, StepPlan
from zinc_rt.sched.prefix import Namespace, chain
from zinc_rt.sched.queues import WaitingQueues
from zinc_rt.sched.request import RUNNING, TERMINAL, Request, State
from zinc_rt.sched.share import Service, Shares
from zinc_rt.sched.tenant import CLASSES, Priority, Tenant, check_tenants, floors

PASSED_OVER = 4  # candidates a step that others may pass
LEFT_OUT = 8  # steps without a page until a decode is parked


class StepRunner(Protocol):
    """What computes: a token for each piece that draws, in order."""

    def run(self, plan: StepPlan) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`step_tokens` bounds a step, `interactive_step_tokens` one in which an interactive request decodes."""

    slots: int
    ctx: int
    step_tokens: int = 512
    interactive_step_tokens: int | None = None
    slice_tokens: int = 64  # made before a tenant of the same class that has no slot may take this one


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request as it arrives. `digests`: of its prompt's pages, computed here unless given."""

    number: int
    tenant: int
    tokens: Sequence[int]
    limit: int
    within: Namespace
    priority: Priority | None = None  # lower than its tenant's
    seed: int = 0
    deadline_ns: int | None = None
    end_tokens: frozenset[int] = frozenset()
    digests: bytes | None = None


@dataclass(slots=True)
class Batch:
    """What a step made: (request's number, token), and (number, reason) of what ended."""

    made: list[tuple[int, int]] = field(default_factory=list)
    ended: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class SchedulerCounts:
    steps: int = 0
    parked: int = 0
    evicted: int = 0
    computed: int = 0


class Scheduler:
    """`clock_ns`: monotonic. `submit`, `cancel` and `hold` may be called from any thread, the rest from one."""

    def __init__(
        self,
        limits: SchedulerLimits,
        tenants: Sequence[Tenant],
        cache: KvCache,
        runner: StepRunner,
        clock_ns: Callable[[], int],
    ) -> None:
        check_tenants(tenants, limits.slots)
        if limits.step_tokens < limits.slots:
            raise UsageError(
                f"{limits.slots} slots decode a token each, and a step takes {limits.step_tokens}",
                next=f"step_tokens of at least {limits.slots}, or fewer slots",
            )
        self.limits, self.tenants, self.cache, self.runner = limits, list(tenants), cache, runner
        self._clock_ns = clock_ns
        self.now_ns = clock_ns()
        for number, tenant in enumerate(tenants):
            cache.set_quotas(number, tenant.pages or [PageQuota() for _ in cache.groups])
        rows = [cache.state_rows - 1] if cache.state_rows else []
        self.shares = Shares([limits.slots, *(group.pages for group in cache.groups), *rows])
        self.service = Service({number: tenant.weight_units for number, tenant in enumerate(tenants)})
        self.queues = WaitingQueues(len(tenants))
        self.buckets = [
            [Bucket(*rate, self.now_ns) if rate else None for rate in (tenant.prefill, tenant.decode)]
            for tenant in tenants
        ]
        self.slots: list[Request | None] = [None] * limits.slots
        self.epochs = [0] * limits.slots
        self._free = list(range(limits.slots - 1, -1, -1))
        self.live: dict[int, Request] = {}
        self.bound = [0] * len(tenants)
        self.parked = [0] * len(tenants)
        self.floors = floors(limits.slots)
        self.counts = SchedulerCounts()
        self._mailbox: deque[Callable[[], None]] = deque()
        self._deadlines: list[tuple[int, int]] = []
        self._batch = Batch()

    # --- what others ask for

    def refuse(self, submission: NewRequest) -> str:
        """Why it can never run, with the largest that would; "" for what can. Reads nothing that changes."""
        length, need = len(submission.tokens), len(submission.tokens) + submission.limit
        if not 0 <= submission.tenant < len(self.tenants):
            return f"no tenant {submission.tenant}"
        if length < 1 or submission.limit < 1:
            return "a request has at least one token, and makes at least one"
        if need > self.limits.ctx:
            return f"{length} tokens and {submission.limit} to make exceed the context of {self.limits.ctx}"
        if not self.cache.could_ever(submission.tenant, need):
            most = next((n for n in range(need, 0, -1) if self.cache.could_ever(submission.tenant, n)), 0)
            return f"{need} tokens never fit the pages this tenant may have: at most {most} do"
        return ""

    def submit(self, submission: NewRequest) -> None:
        """From any thread. Raises UsageError for what can never run."""
        if why := self.refuse(submission):
            raise UsageError(f"request {submission.number}: {why}")
        self._mailbox.append(lambda: self._arrive(submission))

    def cancel(self, number: int, reason: str = "cancelled") -> None:
        """From any thread; takes effect at the next step boundary."""
        self._mailbox.append(lambda: self._end_number(number, State.CANCELLED, reason))

    def hold(self, number: int, held: bool) -> None:
        """From any thread: nobody reads what it makes, or somebody does again."""

        def do() -> None:
            if number in self.live:
                self.live[number].held = held

        self._mailbox.append(do)

    def _arrive(self, new: NewRequest) -> None:
        tokens = np.array(new.tokens, np.int32)
        digests = chain(tokens, self.cache.page_tokens, new.within) if new.digests is None else new.digests
        lowest = self.tenants[new.tenant].priority
        priority = lowest if new.priority is None else Priority(max(lowest, new.priority))
        request = Request(
            new.number, new.tenant, priority, list(new.tokens), len(new.tokens), new.limit, new.within, digests,
            self.now_ns, new.seed, new.deadline_ns, new.end_tokens,
        )  # fmt: skip
        if not self._busy(new.tenant):
            self.service.lift(new.tenant, (t for t in range(len(self.tenants)) if self._busy(t)))
        self.live[new.number] = request
        if new.deadline_ns is not None:
            heapq.heappush(self._deadlines, (new.deadline_ns, new.number))
        self._queue(request, first=False)

    @property
    def slice_tokens(self) -> int:
        return self.limits.slice_tokens

    def _busy(self, tenant: int) -> bool:
        return bool(self.bound[tenant] or self.queues.waiting(tenant))

    def _queue(self, request: Request, *, first: bool) -> None:
        request.queued_ns = self.now_ns
        self.queues.push(request, first=first)

    # --- a step

    def step(self) -> Batch | None:
        """Schedule, run, commit. None where there is nothing to compute now."""
        self.now_ns = self._clock_ns()
        self._batch = Batch()
        while self._mailbox:
            self._mailbox.popleft()()
        self._expire()
        self._admit()
        plan = self._plan()
        if not plan.pieces:
            return self._batch if self._batch.ended else None
        self._commit(plan, self.runner.run(plan))
        return self._batch

    def _expire(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= self.now_ns:
            self._end_number(heapq.heappop(self._deadlines)[1], State.EXPIRED, "deadline")

    # --- admission

    def _admit(self) -> None:
        self.queues.lift_aged(self.now_ns)
        passed: set[int] = set()
        without_rate: set[int] = set()
        while len(passed) < PASSED_OVER:
            request = self._candidate(passed | without_rate)
            if request is None:
                return
            if not self._has_rate(request.tenant):
                without_rate.add(request.tenant)
            elif not self._admitted(request):
                passed.add(request.tenant)

    def _candidate(self, besides: set[int]) -> Request | None:
        """The head request of the tenant with the lowest key."""
        best: tuple[tuple[bool, int], tuple[int, int], tuple[int, int], Request] | None = None
        for tenant, request in self.queues.heads():
            if tenant in besides or self._at_most(tenant):
                continue
            rank = (self.bound[tenant] >= self.tenants[tenant].slots_guaranteed, int(request.effective))
            share = self.share(tenant, request.priority)
            tie = (-self.queues.band(request, self.now_ns), request.number)
            if best is None or _before((rank, share, tie), best[:3]):
                best = (rank, share, tie, request)
        return None if best is None else best[3]

    def _at_most(self, tenant: int) -> bool:
        most = self.tenants[tenant].slots_max
        return most is not None and self.bound[tenant] >= most

    def share(self, tenant: int, priority: Priority, *, more_slots: int = 0) -> tuple[int, int]:
        """The tenant's weighted dominant share, with so many slots more."""
        rows = [self.bound[tenant] + self.parked[tenant]] if self.cache.state_rows else []
        held = [self.bound[tenant] + more_slots, *(pool.charge(tenant) for pool in self.cache.pools), *rows]
        return self.shares.of(held, self.tenants[tenant].weight_units * CLASSES[priority].weight)

    def _has_rate(self, tenant: int) -> bool:
        return all(bucket is None or bucket.allows(self.now_ns) for bucket in self.buckets[tenant])

    def _admitted(self, request: Request) -> bool:
        """Pages and a slot for it, or nothing: pages first, before anybody loses a slot."""
        fresh = request.holding is None
        if fresh and not self._hold_pages(request):
            return False
        if not self._free and (victim := preempt.victim(self, request)) is not None:
            self.park(victim)
        if not self._free:
            if fresh:
                self._let_go(request)
            return False
        self.queues.remove(request)
        self._bind(request, self._free.pop())
        return True

    def _hold_pages(self, request: Request) -> bool:
        tokens = np.array(request.tokens, np.int32)
        match = self.cache.prefix.match(request.digests, tokens, now_ns=self.now_ns)
        request.holding = self.cache.admit(request.tenant, request.within, tokens, request.digests, match)
        return request.holding is not None

    def _let_go(self, request: Request) -> None:
        assert request.holding is not None
        self.cache.release(request.holding)
        request.holding = None

    def _bind(self, request: Request, slot: int) -> None:
        if request.state is State.PARKED:
            self.parked[request.tenant] -= 1
        done = request.state is State.PARKED and request.computed >= len(request.tokens) - 1 and request.made > 0
        request.move(State.DECODE if done else State.PREFILL)
        request.slot, request.bound_made, request.left_out = slot, request.made, 0
        self.slots[slot] = request
        self.bound[request.tenant] += 1

    def _unbind(self, request: Request) -> None:
        slot, request.slot = request.slot, -1
        self.slots[slot] = None
        self.epochs[slot] += 1
        self._free.append(slot)
        self.bound[request.tenant] -= 1

    def park(self, request: Request) -> None:
        """It loses its slot, nothing else."""
        self._unbind(request)
        request.move(State.PARKED)
        self.parked[request.tenant] += 1
        self.counts.parked += 1
        request.lifted = False
        self._queue(request, first=True)

    def evict(self, request: Request) -> None:
        """It loses its pages: its full ones stay as cache until somebody takes them."""
        if request.state in RUNNING:
            self._unbind(request)
            self._queue(request, first=True)
        else:
            self.parked[request.tenant] -= 1
        request.move(State.EVICTED)
        self._refresh_digests(request)
        self._let_go(request)
        self.counts.evicted += 1

    def _refresh_digests(self, request: Request) -> None:
        """What it has made counts as its prompt from here."""
        assert request.holding is not None
        request.digests = bytes(request.holding.digests)

    # --- what a step computes

    def running(self) -> Iterator[Request]:
        return (request for request in self.slots if request is not None)

    def _plan(self) -> StepPlan:
        plan = StepPlan()
        decodes = [request for request in self.running() if request.state is State.DECODE and not request.held]
        for request in decodes:
            if request.state is State.DECODE:  # not evicted for another meanwhile
                self._add(plan, request, len(request.tokens))
        left = self._step_tokens(decodes) - plan.tokens
        for request in self._prompts():
            if left <= 0:
                break
            if request.state is State.PREFILL:
                left -= self._add(plan, request, self._chunk_end(request, left))
        # who was evicted for another after it was planned does not run
        plan.pieces = [piece for piece in plan.pieces if piece.request.state in RUNNING]
        plan.tokens = sum(piece.last - piece.first for piece in plan.pieces)
        return plan

    def _step_tokens(self, decodes: list[Request]) -> int:
        fewer = self.limits.interactive_step_tokens
        if fewer is not None and any(request.priority is Priority.INTERACTIVE for request in decodes):
            return min(self.limits.step_tokens, max(fewer, len(decodes)))
        return self.limits.step_tokens

    def _prompts(self) -> list[Request]:
        """Prompts in the order they are computed in: by class, then by what their tenant was given, then
        arrival."""
        found = [request for request in self.running() if request.state is State.PREFILL and not request.held]
        found.sort(key=lambda r: (r.effective, self.service.counters[r.tenant], r.number))
        return found

    def _chunk_end(self, request: Request, left: int) -> int:
        """As far as the step allows, at a page's end unless it is the prompt's."""
        first, end = request.computed, len(request.tokens)
        reach = first + min(left, self.cache.chunk_tokens)
        if reach >= end:
            return end
        whole = reach // self.cache.page_tokens * self.cache.page_tokens
        return whole if whole > first else reach

    def _add(self, plan: StepPlan, request: Request, last: int) -> int:
        """The piece up to `last`, where its pages can be had, by relieving others if need be."""
        holding = request.holding
        assert holding is not None
        first = holding.computed
        while not self.cache.cover(holding, last):
            victim = preempt.to_evict(self, request)
            if victim is None:
                request.left_out += 1
                if request.left_out > LEFT_OUT:
                    self.park(request)
                return 0
            self.evict(victim)
        request.left_out = 0
        source, target = self.cache.step_rows(holding)
        plan.add(StepPiece(request, first, last, last == len(request.tokens), source, target))
        return last - first

    # --- what came of it

    def _commit(self, plan: StepPlan, drawn: Sequence[int]) -> None:
        self.counts.steps += 1
        tokens = iter(drawn)
        for piece in plan.pieces:
            request, holding = piece.request, piece.request.holding
            assert holding is not None
            count = piece.last - piece.first
            self.counts.computed += count
            self.service.charge(request.tenant, count)
            prefill, decode = self.buckets[request.tenant]
            if piece.first < request.prompt and prefill is not None:
                prefill.charge(min(piece.last, request.prompt) - piece.first, self.now_ns)
            keep = piece.last == len(request.tokens) or piece.last % (16 * self.cache.page_tokens) == 0
            self.cache.ran(holding, request.tokens, piece.last, keep=keep, now_ns=self.now_ns)
            if piece.draws:
                if decode is not None:
                    decode.charge(1, self.now_ns)
                self._drew(request, next(tokens))

    def _drew(self, request: Request, token: int) -> None:
        if request.state is State.PREFILL:
            request.move(State.DECODE)
        request.tokens.append(token)
        self._batch.made.append((request.number, token))
        request.delivered = request.made
        if token in request.end_tokens:
            self._end(request, State.FINISHED, "stop")
        elif request.made >= request.limit:
            self._end(request, State.FINISHED, "length")

    def _end_number(self, number: int, state: State, reason: str) -> None:
        request = self.live.get(number)
        if request is not None and request.state not in TERMINAL:
            self._end(request, state, reason)

    def _end(self, request: Request, state: State, reason: str) -> None:
        if request.slot >= 0:
            self._unbind(request)
        else:
            if request.state is State.PARKED:
                self.parked[request.tenant] -= 1
            self.queues.remove(request)
        if request.holding is not None:
            self._let_go(request)
        request.move(state)
        request.reason = reason
        del self.live[request.number]
        self._batch.ended.append((request.number, reason))


def _before(
    one: tuple[tuple[bool, int], tuple[int, int], tuple[int, int]],
    other: tuple[tuple[bool, int], tuple[int, int], tuple[int, int]],
) -> bool:
    """Keys compare by rank, then by weighted share, then by age and arrival."""
    if one[0] != other[0]:
        return one[0] < other[0]
    mine, theirs = one[1][0] * other[1][1], other[1][0] * one[1][1]
    return (mine, one[2]) < (theirs, other[2])
