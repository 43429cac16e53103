"""Which request of HTTP a scheduler's request number is, for logs and traces, also after it has ended."""

from __future__ import annotations

KEPT = 65_536


class RequestIds:
    """Ids by request number, for a limited number of recent requests. Written by the event loop, read by any
    thread.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._ids: dict[int, str] = {}
        self._kept = kept

    def add(self, number: int, id: str) -> None:
        """Record an id. Request numbers increase."""
        self._ids[number] = id
        if len(self._ids) > self._kept:
            del self._ids[next(iter(self._ids))]

    def of(self, number: int) -> str:
        """Return the HTTP request id; "" for a request without one or one that ended long ago."""
        return self._ids.get(number, "")
