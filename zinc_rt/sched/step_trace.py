"""A trace of the last steps of a scheduler, as plain arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from zinc_rt.ir.slot_record import SlotState
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.state import SchedulerState, StepTimes
from zinc_rt.sched.tenant import Priority

STEPS = 4096
EVENTS_A_STEP = 16  # kept on average
_ARRAYS = ("numbers", "waiting", "free", "idle", "request", "choice", "tenant", "epoch", "phase")  # a row a step


class StepNumbers(NamedTuple):
    """The numbers of a step."""

    start_ns: int
    end_ns: int
    tokens: int
    decodes: int
    prefills: int
    rows: int
    parked: int


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An event between two steps: admit, park, evict, hit ... `slot` is -1 if none applies."""

    at_ns: int
    what: str
    request: int
    slot: int
    amount: int


class StepTrace:
    """A ring buffer of steps. Input is copied; `tenants` and `groups` are the names of tenants and page
    groups."""

    def __init__(self, tenants: Sequence[str], slots: int, groups: Sequence[str], *, steps: int = STEPS) -> None:
        self.tenants, self.groups, self.count = tuple(tenants), tuple(groups), 0
        self.before = 0  # steps before the first that was ever counted here
        self.numbers = np.zeros((steps, len(StepNumbers._fields)), np.int64)
        self.waiting = np.zeros((steps, len(Priority)), np.int32)  # by class
        self.free = np.zeros((steps, len(groups)), np.int32)  # pages that hold nothing, by group
        self.idle = np.zeros((steps, len(groups)), np.int32)  # pages that only the cache has
        # of each slot its request, choice and tenant, and the epoch of the binding; whatever where it is free
        self.request = np.zeros((steps, slots), np.int64)
        self.choice, self.tenant, self.epoch = (np.zeros((steps, slots), np.int32) for _ in range(3))
        self.phase = np.zeros((steps, slots), np.int8)  # SlotState: what it computed, FREE where nothing
        self.events: deque[StepEvent] = deque(maxlen=EVENTS_A_STEP * steps)

    def record(
        self,
        plan: StepPlan,
        records: np.ndarray,
        numbers: StepNumbers,
        waiting: Sequence[int],
        free: Sequence[int],
        idle: Sequence[int],
    ) -> None:
        """Record a finished step. `records`: records of the slots; those in the plan still belong to the
        requests of the step.
        """
        index = self.count % len(self.phase)
        self.numbers[index] = numbers
        self.waiting[index], self.free[index], self.idle[index] = waiting, free, idle
        self.request[index], self.choice[index] = records["request"], records["choice"]
        self.tenant[index], self.epoch[index] = records["tenant"], records["epoch"]
        self.phase[index] = SlotState.FREE
        self.phase[index, plan.slot[: plan.decode_tokens]] = SlotState.DECODE
        self.phase[index, plan.slot[plan.decode_tokens : plan.tokens]] = SlotState.PREFILL
        self.count += 1

    def event(self, at_ns: int, what: str, request: int, slot: int = -1, amount: int = 0) -> None:
        """Record an event; `amount`: tokens or pages, 0 if none applies."""
        self.events.append(StepEvent(at_ns, what, request, slot, amount))

    def copy_last(self, steps: int) -> StepTrace:
        """Return a copy of the last `steps` steps, and of the events since the first of them began."""
        kept = self.kept[max(0, len(self.kept) - steps) :]
        trace = StepTrace(self.tenants, self.phase.shape[1], self.groups, steps=max(1, len(kept)))
        for name in _ARRAYS:
            getattr(trace, name)[: len(kept)] = getattr(self, name)[kept]
        trace.count, trace.before = len(kept), self.count - len(kept)
        since = int(trace.numbers[0, 0]) if len(kept) < self.count else 0
        trace.events.extend(event for event in tuple(self.events) if event.at_ns >= since)
        return trace

    @property
    def kept(self) -> np.ndarray:
        """Return the indices of the steps in the ring, oldest first."""
        size = len(self.phase)
        return np.arange(max(0, self.count - size), self.count) % size


class StepRecorder:
    """An observer that records each step of a scheduler."""

    def __init__(self, scheduler: SchedulerState, *, steps: int = STEPS) -> None:
        groups = [group.name for group in scheduler.cache.groups]
        self._scheduler = scheduler
        self.trace = StepTrace(_list_names(scheduler), scheduler.limits.slots, groups, steps=steps)
        scheduler.observers.append(self)

    def event(self, what: str, request: Request, amount: int) -> None:
        self.trace.event(self._scheduler.clock_ns(), what, request.number, request.slot, amount)

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None:
        s, trace = self._scheduler, self.trace
        if len(s.tenants) != len(trace.tenants):
            trace.tenants = _list_names(s)
        prompts, parked = len(plan.prompts), len(s.parked_requests)
        numbers = StepNumbers(
            times.planned_ns, times.ended_ns, plan.tokens, plan.decodes, prompts, plan.rows, parked
        )
        pools = [pages.pool for pages in s.cache.pools]
        free, idle = [pool.free for pool in pools], [pool.idle for pool in pools]
        trace.record(plan, s.records, numbers, [s.queues.by_class[item] for item in Priority], free, idle)


def _list_names(scheduler: SchedulerState) -> tuple[str, ...]:
    return tuple(tenant.name for tenant in scheduler.tenants)
