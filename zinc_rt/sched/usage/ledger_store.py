"""Persistent ledgers: one thread writes new counts in one transaction per second.

Counting never waits for the disk. If the file cannot be written, the counts stay in memory, the health
reports it, and the next second retries.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.usage import database, query
from zinc_rt.sched.usage.database import UnwrittenUsage
from zinc_rt.sched.usage.ledger import UsageLedger

PERIOD_S = 0.9  # between two batches: with the writing itself a killed process has lost a second at most
FOLD_EVERY_S = 3600.0

Durability = Literal["second", "request"]
OnFailure = Literal["continue", "refuse"]


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """`reason`: why the last write failed, or "". `lag_s`: the age of the oldest count that is only in
    memory."""

    path: Path
    reason: str
    lag_s: float

    @property
    def degraded(self) -> str:
        """Return the fault as a sentence, or ""."""
        if not self.reason:
            return ""
        return f"ledger: {self.path}: {self.reason}; the last {self.lag_s:.0f} s are only in memory"


class LedgerStore:
    """The store locks the file for this process until it is closed.

    `durability`: "second" loses at most the last second when the process ends; "request" also survives a
    power failure after `settle` returns. `on_failure`: whether new work is refused after the file has not
    been written for `max_lag_s`. `told`: called when the health changes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        ledgers: Mapping[str, UsageLedger] | None = None,
        *,
        durability: Durability = "second",
        on_failure: OnFailure = "continue",
        max_lag_s: float = 600.0,
        usage_days: int = 400,
        period_s: float = PERIOD_S,
        told: Callable[[StoreHealth], None] = lambda health: None,
    ) -> None:
        _check(durability, on_failure, max_lag_s, usage_days)
        self.path = Path(path)
        self._ledgers = dict(ledgers or {})
        self._on_failure, self._max_lag_s, self._usage_days = on_failure, max_lag_s, usage_days
        self._period_s, self._told = period_s, told
        self._process = f"{os.getpid()}, begun {datetime.now(UTC).isoformat(timespec='seconds')}"
        self._unwritten = UnwrittenUsage()
        self._reason = ""
        self._unwritten_since: float | None = None
        self._fold_at = 0.0
        self._changed = threading.Condition()
        self._asked = self._answered = 0  # calls of settle; up to which one a batch was tried
        self._closing = self._ended = False
        self._lock = database.lock_file(self.path)
        try:
            self._connection = database.open_to_write(self.path, durable=durability == "request")
        except BaseException:
            os.close(self._lock)
            raise
        self._writer = threading.Thread(target=self._write_until_closed, name="ledger", daemon=True)
        self._writer.start()

    def add(self, model: str, ledger: UsageLedger) -> None:
        """Write this model's ledger from now on."""
        with self._changed:
            self._ledgers = {**self._ledgers, model: ledger}

    def settle(self) -> bool:
        """Write now. Return True when all counts made before the call are in the file, False if it cannot be
        written; they stay in memory then."""
        with self._changed:
            self._asked += 1
            ticket = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= ticket or self._ended)
            return self._answered >= ticket and not self._reason

    def health(self) -> StoreHealth:
        with self._changed:
            since = self._unwritten_since
            return StoreHealth(self.path, self._reason, 0.0 if since is None else time.monotonic() - since)

    def refuses(self) -> str:
        """Return why new work is refused, or ""."""
        health = self.health()
        late = health.lag_s > self._max_lag_s
        return health.degraded if late and self._on_failure == "refuse" else ""

    def close(self) -> StoreHealth:
        """Write the remaining counts and close the file. The health reports whether that succeeded."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._writer.join()
        health = self.health()
        self._connection.close()
        os.close(self._lock)
        return health

    # --- the writer's thread

    def _write_until_closed(self) -> None:
        try:
            while not self._ended:
                self._write_once()
        finally:
            with self._changed:
                if (
                    not self._ended
                ):  # by an error that is nobody's disk: it is in the log, and nothing is written now
                    self._reason = self._reason or "the writer thread has ended"
                    self._unwritten_since = self._unwritten_since or time.monotonic()
                self._ended = True
                self._changed.notify_all()

    def _write_once(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._asked > self._answered, self._period_s)
            last, ticket, ledgers = self._closing, self._asked, self._ledgers
        reason = self._write(ledgers)
        with self._changed:
            before, self._reason, self._answered, self._ended = self._reason, reason, ticket, last
            self._changed.notify_all()
        if bool(reason) != bool(before):
            self._told(self.health())

    def _write(self, ledgers: Mapping[str, UsageLedger]) -> str:
        """Write one batch; return the reason if it could not be written, else ""."""
        minute = int(time.time() // 60)
        since = time.monotonic()
        for model, ledger in ledgers.items():
            self._unwritten.add(minute, model, ledger.take())
        if not self._unwritten:
            return ""
        if self._unwritten_since is None:
            self._unwritten_since = since
        try:
            database.write_batch(self._connection, self._process, self._unwritten)
            self._unwritten, self._unwritten_since = UnwrittenUsage(), None
            if since >= self._fold_at:
                query.fold(self._connection, before_minute=minute - self._usage_days * 1440)
                self._fold_at = since + FOLD_EVERY_S
        except database.UNREADABLE as error:
            return str(error)
        return ""


def _check(durability: str, on_failure: str, max_lag_s: float, usage_days: int) -> None:
    for name, value, known in (
        ("durability", durability, ("second", "request")),
        ("on_failure", on_failure, ("continue", "refuse")),
    ):
        if value not in known:
            raise UsageError(f"ledger: {name} is {value!r}, expected {known[0]!r} or {known[1]!r}")
    if not max_lag_s > 0 or usage_days < 1:
        raise UsageError(f"ledger: max_lag_s {max_lag_s} and usage_days {usage_days} must both be above 0")
