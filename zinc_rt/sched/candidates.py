"""Which tenant's head request is next: a heap of keys, corrected when they come up.

A key that has risen since it was stored is seen when it comes to the top, and goes back with what it is now. One
that has fallen is stored anew at once (`put`): whatever lowers a tenant's key says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from zinc_rt.sched.queues import WaitingQueues
from zinc_rt.sched.request import Request

_Key = tuple[bool, int, int, int, int]


class Candidates:
    """`key(request)`: the lowest is next. At most one stored key of a tenant counts."""

    def __init__(self, queues: WaitingQueues, key: Callable[[Request], _Key], tenants: int) -> None:
        self._queues, self._key = queues, key
        self._stored: list[_Key | None] = [None] * tenants
        self._heap: list[tuple[_Key, int]] = []

    def add_tenant(self) -> None:
        self._stored.append(None)

    def put(self, tenant: int) -> None:
        """The tenant's head is a candidate, by its key of now."""
        head = self._queues.head(tenant)
        if head is None:
            self._stored[tenant] = None
            return
        key, stored = self._key(head), self._stored[tenant]
        if stored is None or key < stored:
            self._stored[tenant] = key
            heapq.heappush(self._heap, (key, tenant))
            if len(self._heap) > 64 + 4 * len(self._stored):
                self._heap = [(k, t) for t, k in enumerate(self._stored) if k is not None]
                heapq.heapify(self._heap)

    def pop(self) -> Request | None:
        """The head request of the tenant with the lowest key. It is no candidate until it is `put` again."""
        heap = self._heap
        while heap:
            stored, tenant = heap[0]
            if self._stored[tenant] != stored:
                heapq.heappop(heap)  # of a tenant that has a lower one, or left
                continue
            head = self._queues.head(tenant)
            if head is None:
                self._stored[tenant] = None
                heapq.heappop(heap)
                continue
            key = self._key(head)
            if key > stored:
                self._stored[tenant] = key
                heapq.heapreplace(heap, (key, tenant))
                continue
            heapq.heappop(heap)
            self._stored[tenant] = None
            return head
        return None
