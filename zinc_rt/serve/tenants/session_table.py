"""The sessions of a tenant: names that its clients gave, when each was last used. Never a token, never a text."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

MOST = 10_000  # of a tenant; the one that was unused for longest is forgotten first


@dataclass(slots=True)
class KnownSession:
    """`last`: second since 1970; `used`: the same on a clock that nobody sets."""

    requests: int
    last: int
    used: float


class SessionTable:
    """Those that were used within `ttl_s`."""

    def __init__(self, ttl_s: float = 1800.0) -> None:
        self._ttl_s = ttl_s
        self._known: OrderedDict[str, KnownSession] = OrderedDict()

    def count(self, name: str) -> None:
        """A request of it came."""
        known = self._known.pop(name, None) or KnownSession(0, 0, 0.0)
        self._known[name] = KnownSession(known.requests + 1, int(time.time()), time.monotonic())
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def everybody(self) -> dict[str, KnownSession]:
        """By name, the one that was used last behind the others."""
        since = time.monotonic() - self._ttl_s
        while self._known and next(iter(self._known.values())).used < since:
            self._known.popitem(last=False)
        return dict(self._known)

    def forget(self, name: str) -> bool:
        """Whether it was known."""
        return self._known.pop(name, None) is not None
