"""The last steps of a scheduler, kept as plain arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from zinc_rt.sched.tenant import Priority

STEPS = 4096
EVENTS_A_STEP = 16  # kept on average


class StepNumbers(NamedTuple):
    """The figures of a step."""

    start_ns: int
    end_ns: int
    tokens: int
    decodes: int
    prefills: int
    rows: int
    parked: int


@dataclass(frozen=True, slots=True)
class StepEvent:
    """Something that happened between two steps: admit, park, evict, hit ... `slot` is -1 where there is none."""

    at_ns: int
    what: str
    request: int
    slot: int
    amount: int


class StepTrace:
    """A ring of steps. What is given is copied; `tenants` and `groups` are names, of tenants and page groups."""

    def __init__(self, tenants: Sequence[str], slots: int, groups: Sequence[str], *, steps: int = STEPS) -> None:
        self.tenants, self.groups, self.count = tuple(tenants), tuple(groups), 0
        self.numbers = np.zeros((steps, len(StepNumbers._fields)), np.int64)
        self.waiting = np.zeros((steps, len(Priority)), np.int32)  # by class
        self.free = np.zeros((steps, len(groups)), np.int32)  # pages that hold nothing, by group
        self.idle = np.zeros((steps, len(groups)), np.int32)  # pages that only the cache has
        self.request = np.zeros((steps, slots), np.int64)  # each slot's; whatever it was where the slot is free
        self.tenant = np.zeros((steps, slots), np.int32)
        self.phase = np.zeros((steps, slots), np.int8)  # SlotState
        self.events: deque[StepEvent] = deque(maxlen=EVENTS_A_STEP * steps)

    def record(
        self,
        numbers: StepNumbers,
        waiting: Sequence[int],
        free: Sequence[int],
        idle: Sequence[int],
        slots: np.ndarray,
    ) -> None:
        """A step has ended. `slots`: the slots' records (`ir.slot_record.RECORD`), with `state` as it computed."""
        at = self.count % len(self.phase)
        self.numbers[at] = numbers
        self.waiting[at], self.free[at], self.idle[at] = waiting, free, idle
        self.request[at] = slots["request"]
        self.tenant[at] = slots["tenant"]
        self.phase[at] = slots["state"]
        self.count += 1

    def event(self, at_ns: int, what: str, request: int, slot: int = -1, amount: int = 0) -> None:
        """Note what happened; `amount`: of tokens or pages, 0 where it has none."""
        self.events.append(StepEvent(at_ns, what, request, slot, amount))

    @property
    def kept(self) -> np.ndarray:
        """The places of the steps that the ring still has, oldest first."""
        size = len(self.phase)
        return np.arange(max(0, self.count - size), self.count) % size
