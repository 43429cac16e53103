"""The sessions of a tenant: their names and times of last use, without tokens or text."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

MOST = 10_000  # of a tenant; the one that was unused for longest is forgotten first


@dataclass(slots=True)
class KnownSession:
    """`last`: seconds since 1970; `used`: the same time on the monotonic clock."""

    requests: int
    last: int
    used: float


class SessionTable:
    """The sessions used within the last `ttl_s` seconds."""

    def __init__(self, ttl_s: float = 1800.0) -> None:
        self._ttl_s = ttl_s
        self._known: OrderedDict[str, KnownSession] = OrderedDict()

    def count(self, name: str) -> None:
        """Count a request of the session."""
        known = self._known.pop(name, None) or KnownSession(0, 0, 0.0)
        self._known[name] = KnownSession(known.requests + 1, int(time.time()), time.monotonic())
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def list_sessions(self) -> dict[str, KnownSession]:
        """Return the sessions by name, least recently used first."""
        since = time.monotonic() - self._ttl_s
        while self._known and next(iter(self._known.values())).used < since:
            self._known.popitem(last=False)
        return dict(self._known)

    def forget(self, name: str) -> bool:
        """Remove a session. Return whether it existed."""
        return self._known.pop(name, None) is not None
