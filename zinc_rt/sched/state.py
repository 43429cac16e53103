"""The scheduler's state, and the transitions of a request between queue, slot and end. Policy is in
admission.py, preempt.py, planning.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from math import lcm
from typing import Any, NamedTuple, Protocol

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.bucket import Bucket
from zinc_rt.sched.kv.capsule import Capsule
from zinc_rt.sched.kv.kv_cache import KvCache, PageCopy
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.mask_fills import MaskFills
from zinc_rt.sched.plan import Batch, LateRow, StepPlan
from zinc_rt.sched.queues import Candidates, WaitingQueues, find_band, has_waited_since
from zinc_rt.sched.request import POSITION, RUNNING, TERMINAL, EndTokens, Request, State
from zinc_rt.sched.sessions import SessionPins
from zinc_rt.sched.share import ServiceCounters, Shares
from zinc_rt.sched.slots import Slots
from zinc_rt.sched.speculation import Speculation
from zinc_rt.sched.step_cost import PREDICTED, PREDICTED_BY_PREFILL, MeasuredCost, StepCost
from zinc_rt.sched.tenant import (
    BANDS,
    CLASSES,
    SECOND_NS,
    Classes,
    Priority,
    Tenant,
    check_tenants,
    compute_floors,
    list_isolation_groups,
)
from zinc_rt.sched.timers import Timers
from zinc_rt.sched.token_mask import TokenMask
from zinc_rt.sched.usage.ledger import StepUsage, UsageLedger

CLIENT_TIMEOUT_STEPS = 8192


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The limits of a scheduler. The defaults are those of every front end, gate and simulation.

    `step_tokens` limits a step; `classes` also have latency budgets, which limit a step by its time as `cost`
    predicts it before it is measured. A paused request keeps its slot for `hold_ns` and lives for
    `client_timeout_ns` and for `client_timeout_steps` steps of others, whichever ends first; a session's pages
    stay for `session_ttl_ns`. `submission_ns`: the time that a step with prompts may take by `cost`, because
    the device's driver ends longer ones; None: any. `prefill_ordering`: the ordering of prompts, if decodes
    have another one: a step with both is two launches. `drafts`: the most draft tokens of a request in a step.
    `whole_prompts`: a step computes all tokens of a prompt or none, because each token sees the others.
    `embeds`: requests end with their prompt, whose row is no sampled token. `check_every`: steps between checks
    of all invariants, 0: never.
    """

    slots: int
    ctx: int
    step_tokens: int = 512
    slice_tokens: int = 64  # made before a tenant of the same class that has no slot may take this one
    checkpoint_tokens: int = 4096  # of a long prompt, from one recurrent state that is kept to the next
    hold_ns: int = SECOND_NS
    client_timeout_ns: int = 30 * SECOND_NS
    client_timeout_steps: int = CLIENT_TIMEOUT_STEPS
    session_ttl_ns: int = 1800 * SECOND_NS
    submission_ns: int | None = None
    prefill_ordering: str = ""
    drafts: int = 0
    whole_prompts: bool = False
    embeds: bool = False
    check_every: int = 256
    classes: Classes = field(default_factory=lambda: CLASSES)
    cost: StepCost = PREDICTED


# fields that follow from the model or the command's options, or are reported in other words
NOT_REPORTED = ("classes", "cost", "submission_ns", "prefill_ordering", "drafts", "whole_prompts", "embeds")


def describe_limit_changes(limits: SchedulerLimits) -> list[str]:
    """Return the limits that a caller changed from the defaults, as texts for a report's shortcuts. Slots and
    context have no default; drafts change no result."""
    usual = SchedulerLimits(limits.slots, limits.ctx)
    texts = [
        f"{field.name} {getattr(limits, field.name)} (default {getattr(usual, field.name)})"
        for field in fields(SchedulerLimits)
        if field.name not in NOT_REPORTED and getattr(limits, field.name) != getattr(usual, field.name)
    ]
    if limits.submission_ns is not None:
        texts.append(
            f"{_format_in_ms('submission', limits.submission_ns)}: longer prompts are split (default none)"
        )
    for priority, row in limits.classes.items():
        for option in fields(row):
            value, default = getattr(row, option.name), getattr(usual.classes[priority], option.name)
            if value != default:
                texts.append(
                    f"{priority.name.lower()} {_format_in_ms(option.name, value)} (default "
                    f"{_format_in_ms('', default)})"
                )
    if limits.cost != PREDICTED_BY_PREFILL[limits.prefill_ordering]:
        texts.append(f"step cost of {limits.cost.card} (default {usual.cost.card})")
    return [f"scheduler: {text}" for text in texts]


def _format_in_ms(name: str, value: Any) -> str:
    """Format a value with its name, with nanoseconds as milliseconds."""
    shown = "none" if value is None else f"{value / 1e6:g} ms" if isinstance(value, int) and value > 1e5 else value
    return f"{name.removesuffix('_ns')} {shown}".strip()


@dataclass(slots=True)
class SchedulerCounts:
    """`limited_steps`: had fewer tokens than without a latency budget. `infeasible_steps`: those in which the
    decodes alone would have exceeded it, with the longest expected time of such decodes."""

    steps: int = 0
    parked: int = 0
    evicted: int = 0
    computed: int = 0
    failed_steps: int = 0
    limited_steps: int = 0
    infeasible_steps: int = 0
    infeasible_ns: int = 0
    masks_late: int = 0  # rows whose token mask was not filled when their step was submitted


class StepTimes(NamedTuple):
    """The times of a step by the scheduler's clock: messages and planning start at `began_ns`, followed by
    execution and commit."""

    began_ns: int
    planned_ns: int
    computed_ns: int
    ended_ns: int


class StepObserver(Protocol):
    """An observer of steps: `event` on request events (arrive, admit, park, evict, hit, end), `stepped` after
    each step. Both run inside the step, so they must be fast and must not raise."""

    def event(self, what: str, request: Request, amount: int) -> None: ...

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None: ...


class GapBudget(NamedTuple):
    """The time of a step while requests of class `priority` decode."""

    ns: int
    priority: Priority


Kind = tuple[int, Priority, Priority]  # tenant, class, class it has by its age


class SchedulerState:
    """`live`: the unfinished choices by request number. `kinds`: the running requests by preemption criteria.
    `bound`, `parked`: by tenant."""

    def __init__(
        self,
        limits: SchedulerLimits,
        tenants: Sequence[Tenant],
        cache: KvCache,
        clock_ns: Callable[[], int],
        ledger: UsageLedger | None,
        vocab: int,
    ) -> None:
        check_tenants(tenants, limits.slots)
        if limits.step_tokens < limits.slots:
            raise UsageError(
                f"{limits.slots} slots decode one token each, but a step takes {limits.step_tokens}",
                next=f"set step_tokens to at least {limits.slots}, or use fewer slots",
            )
        self.limits, self.cache, self.ledger, self.clock_ns = limits, cache, ledger, clock_ns
        self.tenants: list[Tenant] = list(tenants)
        self.observers: list[StepObserver] = []
        self.now_ns = clock_ns()
        count = len(tenants)
        for number, tenant in enumerate(tenants):
            cache.set_quotas(number, tenant.pages or [PageQuota() for _ in cache.groups])
        states = [cache.state_rows - 1] if cache.state_rows else []
        self.shares = Shares([limits.slots, *(group.pages for group in cache.groups), *states])
        self.service = ServiceCounters({number: tenant.weight_units for number, tenant in enumerate(tenants)})
        self.buckets = [self.make_buckets(tenant) for tenant in tenants]
        self.slots = Slots(limits.slots, limits.ctx, -(-limits.ctx // cache.page_tokens), len(cache.groups), count)
        self.ends = EndTokens()
        self.timers = Timers()
        self.queues = WaitingQueues(count)
        self.candidates = Candidates(self.queues, self.key, count)
        self.pins = SessionPins(cache, limits.session_ttl_ns)
        self.live: dict[int, list[Request]] = {}
        self.aside: dict[Request, None] = {}  # held so long that they lost their slot: they wait for their reader
        self.held: dict[Request, int] = {}  # paused, by the step before the pause, ascending
        self.parked_requests: dict[Request, None] = {}
        self.prefilling: list[Request] = []
        self.capsules: dict[Capsule, None] = {}
        self.full: dict[int, None] = {}  # slots that decode, and need a page first
        self.moving: dict[int, None] = {}  # slots that decode, and whose state moves to another row
        self.masked: dict[int, TokenMask] = {}  # by slot
        self.fills = MaskFills(vocab, limits.slots, clock_ns)
        self.late: dict[Request, LateRow] = {}  # their rows wait for a mask
        self.drawn_late: list[Request] = []  # since the last plan
        self.probation: list[Request] = []  # in two steps that failed: each runs alone
        self.collector: Request | None = None  # has waited long for pages: those that come free are its
        self.collected: list[int] = []
        self.bound, self.parked = [0] * count, [0] * count
        self.several = 0  # tenants with more than one slot
        self.kinds: dict[Kind, dict[Request, None]] = {}
        self.running_by_class = dict.fromkeys(Priority, 0)
        self.floors = compute_floors(limits.slots, limits.classes)
        self.counts = SchedulerCounts()
        self.cost = MeasuredCost(limits.cost)
        self.gap_budgets = [
            GapBudget(row.gap_ns, item) for item, row in limits.classes.items() if row.gap_ns is not None
        ]
        self.last_turn = -1  # the last slot that decoded when those of lower classes took turns
        rows = min(limits.step_tokens, limits.slots * (1 + limits.drafts))
        self.plan = StepPlan(limits.step_tokens, limits.slots, len(cache.groups), most_rows=rows)
        self.vocab = vocab
        self.speculation: Speculation | None = None
        self.generated: StepUsage | None = None
        self.begin_accounts()
        self.copies: list[PageCopy] = []
        self.slot_steps = np.zeros(count, np.int64)  # bound slots by tenant
        self.seen_service: dict[int, float] = {}  # by the last check
        self.ended: list[tuple[int, int, str]] = []
        self.rolling = cache.state_rows > 2 * limits.slots  # rows for a state at each last page boundary
        self.update_tenants()

    def make_buckets(self, tenant: Tenant) -> list[Bucket | None]:
        return [Bucket(*rate, self.now_ns) if rate else None for rate in (tenant.prefill, tenant.decode)]

    def begin_accounts(self) -> None:
        """Pass the current tenants, and the groups whose tenants may share pages, to the ledger."""
        if self.ledger is not None:
            self.ledger.configure([tenant.name for tenant in self.tenants], list_isolation_groups(self.tenants))
            self.generated = self.ledger.clear_step()

    def update_tenants(self) -> None:
        """Compute what depends on all tenants: the common denominator of their shares, and whether any cache entry
        has a time to live."""
        self.sweeps = any(tenant.cache_ttl_ns is not None for tenant in self.tenants)
        weights = {
            (number, priority): tenant.weight_units * row.weight
            for number, tenant in enumerate(self.tenants)
            for priority, row in self.limits.classes.items()
        }
        whole = lcm(*weights.values()) if weights else 1
        self._factors = {kind: whole // weight for kind, weight in weights.items()}

    # --- what is asked for

    @property
    def records(self) -> np.ndarray:
        """Return the live records, RECORD [slots]."""
        return self.slots.records

    def running(self) -> Iterator[Request]:
        """Return the requests in slots, by slot."""
        return (request for request in self.slots.requests if request is not None)

    @property
    def runs(self) -> bool:
        """Return whether any slot is bound."""
        return len(self.slots.free) < self.limits.slots

    def requests(self) -> Iterator[Request]:
        """Return every unfinished choice."""
        return (request for choices in self.live.values() for request in choices)

    def busy(self, tenant: int) -> bool:
        return bool(self.bound[tenant] or self.queues.waiting(tenant))

    def compute_share(self, tenant: int, priority: Priority, *, more_slots: int = 0) -> int:
        """Return the tenant's weighted dominant share with this many more slots, over a common denominator."""
        bound, shares = self.bound[tenant], self.shares
        held = (bound + more_slots) * shares.parts[0]
        for index, pool in enumerate(self.cache.pools, 1):
            held = max(held, pool.count_charge(tenant) * shares.parts[index])
        if self.cache.state_rows:
            held = max(held, (bound + self.parked[tenant]) * shares.parts[-1])
        return held * self._factors[tenant, priority]

    def compute_slot_share(self, tenant: int, priority: Priority, *, more: int) -> int:
        """Return the tenant's weighted share of slots only, with this many more."""
        return (self.bound[tenant] + more) * self.shares.parts[0] * self._factors[tenant, priority]

    def is_below_floor(self, request: Request) -> bool:
        """Return whether the request has waited through all bands while its class has fewer slots than its
        floor."""
        priority = request.priority
        return request in self.queues.aged[priority] and self.running_by_class[priority] < self.floors[priority]

    def key(self, request: Request) -> tuple[bool, int, int, int, int]:
        """Return the admission key: below a guarantee or a floor, then class, share, age, arrival."""
        tenant = request.tenant
        return (
            self.bound[tenant] >= self.tenants[tenant].slots_guaranteed and not self.is_below_floor(request),
            int(request.effective),
            self.compute_share(tenant, request.priority),
            -find_band(request, self.now_ns, self.limits.classes),
            request.number,
        )

    def notify(self, what: str, request: Request, amount: int = 0, *, counter: str = "") -> None:
        """Notify the observers of an event, and the ledger if it counts the event."""
        if self.ledger is not None and counter:
            self.ledger.count(counter, request.tenant, amount or 1)
        for observer in self.observers:
            observer.event(what, request, amount)

    # --- moves

    def queue(self, request: Request, *, first: bool) -> None:
        """Queue a request at the end or head of its class. A paused one waits for its reader."""
        if request.held:
            self.aside[request] = None
            return
        request.queued_ns, request.lifted = self.now_ns, False
        self.queues.push(request, first=first)
        self.candidates.update(request.tenant)
        self._start_age_timer(request)

    def _start_age_timer(self, request: Request) -> None:
        """After another band of waiting, the request is treated as older."""
        later = self.now_ns + self.limits.classes[request.priority].age_ns
        self.timers.at(
            later, partial(self._advance_band, request), partial(has_waited_since, request, request.queued_ns)
        )

    def _advance_band(self, request: Request) -> None:
        """Its key decreases with each band that it waits; after the last, it is promoted by one class if its
        tenant has no slot.
        """
        aged = find_band(request, self.now_ns, self.limits.classes) >= BANDS
        if aged:  # who has slots is served: a flood's own waiters are not to go up and past other tenants
            self.queues.lift(request, climbs=not self.bound[request.tenant])
        if not aged or (request.priority and not request.lifted):
            self._start_age_timer(request)
        self.candidates.update(request.tenant)

    def unqueue(self, request: Request) -> None:
        if request in self.aside:
            del self.aside[request]
        elif request.ticket >= 0:
            self.queues.remove(request)
            self.candidates.update(request.tenant)

    def bind(self, request: Request) -> None:
        """Bind a request that has its pages to a free slot."""
        assert request.holding is not None
        if request.ticket >= 0:
            self.queues.remove(request)
        decodes = False
        if request.state is State.PARKED:
            self.parked[request.tenant] -= 1
            del self.parked_requests[request]
            decodes = request.holding.computed >= len(request.tokens) - 1 and request.generated > 0
        request.move(State.DECODE if decodes else State.PREFILL)
        request.bound_made, request.left_out, request.ran_ns = request.generated, 0, self.now_ns
        slot = self.slots.bind(request, request.state, self.counts.steps)
        self.slots.set_room(request)
        self.sync_rows(request)
        if decodes:
            if request.computed >= request.holding.room:
                self.full[slot] = None
        else:
            self.prefilling.append(request)
        self.ends.add(request)
        if request.mask is not None:
            self.masked[slot] = request.mask
            self.fills.begin(request.mask)
        self.bound[request.tenant] += 1
        self.several += self.bound[request.tenant] == 2
        self.slot_steps[request.tenant] += 1
        self.running_by_class[request.priority] += 1
        self._find_class_requests(request)[request] = None
        self.notify("admit", request)

    def _find_class_requests(self, request: Request) -> dict[Request, None]:
        return self.kinds.setdefault((request.tenant, request.priority, request.effective), {})

    def reset_promotion(self, request: Request) -> None:
        """Reset the promotion of a request that has had its turn."""
        self._remove_from_class(request)
        request.lifted = False
        self._find_class_requests(request)[request] = None

    def _remove_from_class(self, request: Request) -> None:
        kind = request.tenant, request.priority, request.effective
        del self.kinds[kind][request]
        if not self.kinds[kind]:
            del self.kinds[kind]

    def sync_rows(self, request: Request) -> None:
        """Update the slot's arrays with the state rows of the next step."""
        if self.cache.rows is None or request.slot < 0:
            return
        holding = request.holding
        assert holding is not None
        self.slots.set_rows(request, self.cache.step_rows(holding))
        if holding.spare >= 0 and request.state is State.DECODE:
            self.moving[request.slot] = None
        else:
            self.moving.pop(request.slot, None)

    def sync(self, request: Request) -> None:
        """Update the holding to the slot's position, and cache its full pages."""
        holding = request.holding
        if holding is None or request.slot < 0 or holding.computed >= request.computed:
            return
        self.cache.record_computed(holding, self.slots.history[request.slot], request.computed, now_ns=self.now_ns)

    def _unbind(self, request: Request) -> None:
        if self.late.pop(request, None) is not None and request.holding is not None:
            request.holding.spoilt = True  # its state is ahead of its position
        self.sync(request)
        slot = request.slot
        self.masked.pop(slot, None)
        self._remove_from_class(request)
        if request.state is State.PREFILL:
            self.prefilling.remove(request)
        self.full.pop(slot, None)
        self.moving.pop(slot, None)
        self.ends.remove(request)
        self.slots.unbind(request)
        request.reached = max(request.reached, request.computed + int(self.slots.behind[slot]))
        self.several -= self.bound[request.tenant] == 2
        self.bound[request.tenant] -= 1
        self.slot_steps[request.tenant] -= 1
        self.running_by_class[request.priority] -= 1

    def park(self, request: Request) -> None:
        """Preempt a request: it loses only its slot. One with a late row is evicted, because it computes that row
        again."""
        if request in self.late:
            self.evict(request)
            return
        self._unbind(request)
        request.move(State.PARKED)
        self.parked[request.tenant] += 1
        self.parked_requests[request] = None
        self.counts.parked += 1
        self.queue(request, first=True)
        self.notify("park", request, counter="parks")

    def evict(self, request: Request) -> None:
        """Evict a request: it loses its pages; full pages remain cached until reused."""
        if request.state in RUNNING:
            self._unbind(request)
            second = True
        else:
            self.parked[request.tenant] -= 1
            del self.parked_requests[request]
            second = False
        request.move(State.EVICTED)
        assert request.holding is not None
        request.digests = bytes(request.holding.digests)
        self.release_slot(request)
        if second:
            self.queue(request, first=True)
        else:
            self.candidates.update(request.tenant)
        self.counts.evicted += 1
        self.notify("evict", request, counter="evictions")

    def release_slot(self, request: Request) -> None:
        """Release its pages and state row."""
        assert request.holding is not None
        self.cache.release(request.holding)
        request.holding = None
        request.row[POSITION] = 0

    def end(self, request: Request, state: State, reason: str) -> None:
        """End a request. Its pages remain cached, and its session's pages are pinned."""
        if request.slot >= 0:
            self._unbind(request)
        else:
            if request.state is State.PARKED:
                self.parked[request.tenant] -= 1
                del self.parked_requests[request]
            self.unqueue(request)
        if request.holding is not None:
            if state is State.FINISHED and request.session:
                self._pin(request)
            self.release_slot(request)
        self.held.pop(request, None)
        self.candidates.update(request.tenant)
        if self.collector is request:
            self.stop_collecting()
        if request in self.probation:
            self.probation.remove(request)
        request.move(state)
        request.reason = reason
        if request.mask is not None:
            self.fills.drop(request.mask)
        if self.speculation is not None:
            self.speculation.forget(request.number, request.choice)
        choices = self.live[request.number]
        choices.remove(request)
        if not choices:
            del self.live[request.number]
        self.ended.append((request.number, request.choice, reason))
        self.notify("end", request, counter=f"requests_{state.value}.{reason}")
        siblings, request.siblings = request.siblings, []
        for sibling in siblings:  # its further choices go on without it
            if sibling.state is State.WAITING:
                self.queue(sibling, first=False)

    def _pin(self, request: Request) -> None:
        session_pin_pages = self.tenants[request.tenant].session_pin_pages
        assert request.holding is not None
        if session_pin_pages:
            self.pins.pin(request.holding, request.session, session_pin_pages, self.now_ns, self.timers)

    def stop_collecting(self) -> None:
        """Release the pages reserved for a waiting request."""
        if self.collector is not None:
            for pool, count in zip(self.cache.pools, self.collected, strict=True):
                pool.reserve(self.collector.tenant, -count)
            self.collector, self.collected = None, []

    def end_number(self, number: int, state: State, reason: str, *, choice: int | None = None) -> None:
        """End every choice of a request, or one of them."""
        for request in list(self.live.get(number, ())):
            if request.state not in TERMINAL and choice in (None, request.choice):
                self.end(request, state, reason)
