"""Timers: deadlines, ages, refills, holds. A timer that is no longer valid is dropped when it is due."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timers:
    """A heap of (time, action, validity check)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None], Callable[[], bool]]] = []
        self._count = 0
        self._compact_at = 256

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, ns: int, do: Callable[[], None], holds: Callable[[], bool]) -> None:
        """Run an action at a time, if it is still valid then."""
        self._count += 1
        heapq.heappush(self._heap, (ns, self._count, do, holds))
        if len(self._heap) > self._compact_at:  # so that what was cancelled is not kept until it would be due
            self._heap = [item for item in self._heap if item[3]()]
            heapq.heapify(self._heap)
            self._compact_at = max(256, 2 * len(self._heap))

    def run(self, now_ns: int) -> None:
        """Run the due actions."""
        while self._heap and self._heap[0][0] <= now_ns:
            _, _, do, holds = heapq.heappop(self._heap)
            if holds():
                do()

    def find_next_ns(self) -> int | None:
        """Return the time of the next action."""
        while self._heap and not self._heap[0][3]():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
