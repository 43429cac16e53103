"""Events that an operator should know of, as lines of the log: what is late, full, refused or at its limit.

Each kind of event has one line at once, and then at most one every INTERVAL_SECONDS for the same subject, with the
number of those that had no line. A tenant that floods the server cannot fill the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from zinc_rt.sched.usage.ledger_store import StoreHealth
from zinc_rt.serve.observe.logs import LOGGER

INTERVAL_SECONDS = 10.0
KEPT_SUBJECTS = 1024
LOOP_PERIOD_SECONDS = 0.25
LATE_SECONDS = 0.1  # that the event loop may be late
JUMP_SECONDS = 1.0  # by which the wall clock may move against the monotonic clock


@dataclass(slots=True)
class _Subject:
    due: float  # when it may have a line again
    unlogged: int = 0


class EventLog:
    """The log lines of repeated events. Used in the event loop."""

    def __init__(self) -> None:
        self._subjects: dict[tuple[str, str], _Subject] = {}

    def report(self, event: str, subject: str, **about: object) -> None:
        """Log an event of a subject, a tenant for example, unless it had a line a short time ago."""
        now = time.monotonic()
        known = self._subjects.get((event, subject))
        if known is not None and now < known.due:
            known.unlogged += 1
            return
        if known is not None and known.unlogged:
            about["unlogged"] = known.unlogged
        self._subjects.pop((event, subject), None)
        self._subjects[event, subject] = _Subject(now + INTERVAL_SECONDS)
        if len(self._subjects) > KEPT_SUBJECTS:
            del self._subjects[next(iter(self._subjects))]
        LOGGER.warning(event, extra=about)


EVENTS = EventLog()


def report_ledger(health: StoreHealth) -> None:
    """Log that the ledger cannot be written, or can be written again. It is called by the ledger's thread."""
    if health.reason:
        LOGGER.error("ledger_unwritten", extra={"path": str(health.path), "reason": health.reason})
    else:
        LOGGER.log(logging.WARNING, "ledger_written_again", extra={"path": str(health.path)})


async def watch_clocks() -> None:
    """Log when the event loop is late, which delays every stream, and when the wall clock jumps, which moves
    expiry dates and the days of usage. Runs until it is cancelled."""
    monotonic, wall = time.monotonic(), time.time()
    while True:
        await asyncio.sleep(LOOP_PERIOD_SECONDS)
        before, before_wall, monotonic, wall = monotonic, wall, time.monotonic(), time.time()
        late = monotonic - before - LOOP_PERIOD_SECONDS
        if late > LATE_SECONDS:
            EVENTS.report("event_loop_late", "", seconds=round(late, 3))
        jump = (wall - before_wall) - (monotonic - before)
        if abs(jump) > JUMP_SECONDS:
            EVENTS.report("clock_jumped", "", seconds=round(jump, 3))
