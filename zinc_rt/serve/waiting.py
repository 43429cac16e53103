"""Who may still wait: queues have an end, and a wait that is longer than a deadline need not begin."""

from __future__ import annotations

import math
import random
from collections import deque

from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.config import QueueDepths
from zinc_rt.serve.errors import ServeError, unavailable

FINISHED = 64  # requests over which a pace is taken
JITTER = 0.2  # so that clients who were refused together do not come back together


class Pace:
    """How fast a model finishes requests, by the device's time: a pause of its clients does not count."""

    def __init__(self) -> None:
        self._finished: deque[float] = deque(maxlen=FINISHED)

    def finished(self, used_seconds: float) -> None:
        """A request has ended, when the device had been used for so long."""
        self._finished.append(used_seconds)

    def wait_seconds(self, ahead: int) -> float:
        """How long somebody waits behind so many others; 0 where nothing is known yet."""
        if ahead < 1 or len(self._finished) < 2:
            return 0.0
        spent = self._finished[-1] - self._finished[0]
        return ahead * spent / (len(self._finished) - 1)


def retry_after(seconds: float) -> float:
    """When to come again: whole seconds, at least one, a little more or less for each."""
    return max(1, math.ceil(seconds * random.uniform(1 - JITTER, 1 + JITTER)))


def check_room(
    scheduler: Scheduler,
    tenant: int,
    priority: Priority,
    depths: QueueDepths,
    pace: Pace,
    *,
    arriving: int = 0,
    deadline_seconds: float | None = None,
    fail_fast: bool = False,
) -> None:
    """Check that a request may wait: ServeError 429 where its tenant's queue is full, 503 where its class's is,
    504 for one that would rather fail than wait beyond its deadline. `arriving`: requests that the scheduler has
    not seen yet. From any thread."""
    queues, free = scheduler.queues, len(scheduler.slots.free)
    ahead = max(0, sum(queues.by_class[each] for each in Priority if each <= priority) + arriving - free)
    wait = pace.wait_seconds(ahead)
    most = scheduler.tenants[tenant].queue_max
    if queues.waiting(tenant) + arriving >= most + free:
        raise ServeError(
            429,
            f"{most} requests of this tenant wait already, and no more may",
            "rate_limit_error",
            code="quota_exceeded",
            retry_after_seconds=retry_after(wait),
        )
    depth: int = getattr(depths, priority.name.lower())
    if queues.by_class[priority] + arriving >= depth + free:
        raise unavailable(f"{depth} requests of this class wait already", "overloaded", retry_after(wait))
    if fail_fast and deadline_seconds is not None and wait > deadline_seconds:
        raise ServeError(
            504,
            f"the wait is some {wait:.1f} s, and the deadline {deadline_seconds:g} s",
            "timeout_error",
            code="deadline_exceeded",
            retry_after_seconds=retry_after(wait),
        )
