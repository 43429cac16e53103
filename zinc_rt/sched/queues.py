"""The waiting requests: a queue per tenant and class, preempted requests first, and the order of admission."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from zinc_rt.sched.request import Request
from zinc_rt.sched.tenant import BANDS, Classes, Priority

_Queue = deque[tuple[int, Request]]  # with the ticket under which it stands there


def find_band(request: Request, now_ns: int, classes: Classes) -> int:
    """Return how long a request has waited, in bands of its class, at most BANDS."""
    return min(BANDS, (now_ns - request.queued_ns) // classes[request.priority].age_ns)


def has_waited_since(request: Request, queued_ns: int) -> bool:
    """Return whether a request has waited since `queued_ns`."""
    return request.ticket >= 0 and request.queued_ns == queued_ns


class WaitingQueues:
    """The queues of waiting requests. Removed requests are dropped lazily at the head, which avoids searches."""

    def __init__(self, tenants: int) -> None:
        self._queues: list[dict[Priority, _Queue]] = [{} for _ in range(tenants)]
        self._counts = [0] * tenants
        self._tickets = 0
        self._stale = 0
        self.count = 0
        self.by_class = dict.fromkeys(Priority, 0)
        self.aged: dict[Priority, set[Request]] = {item: set() for item in Priority}  # waited through all bands

    def add_tenant(self) -> None:
        self._queues.append({})
        self._counts.append(0)

    def push(self, request: Request, *, first: bool) -> None:
        assert request.ticket < 0, f"request {request.number} waits already"
        self._tickets += 1
        request.ticket = self._tickets
        queue = self._queues[request.tenant].setdefault(request.effective, deque())
        if first:
            queue.appendleft((request.ticket, request))
        else:
            queue.append((request.ticket, request))
        self._counts[request.tenant] += 1
        self.count += 1
        self.by_class[request.priority] += 1

    def remove(self, request: Request) -> None:
        """Remove a waiting request."""
        assert request.ticket >= 0, f"request {request.number} waits nowhere"
        request.ticket = -1
        self.aged[request.priority].discard(request)
        self._counts[request.tenant] -= 1
        self.count -= 1
        self.by_class[request.priority] -= 1
        self._stale += 1
        if self._stale > 64 + self.count:
            self._sweep()

    def _sweep(self) -> None:
        """Keep at most as many removed entries as waiting requests."""
        for queues in self._queues:
            for priority, queue in queues.items():
                queues[priority] = deque(item for item in queue if item[1].ticket == item[0])
        self._stale = 0

    def lift(self, request: Request, *, climbs: bool) -> None:
        """Promote a request that has waited through all bands by one class, and add it to `climbs`."""
        if climbs and not request.lifted and request.priority:
            self.remove(request)
            request.lifted = True
            self.push(request, first=False)
        self.aged[request.priority].add(request)

    def waiting(self, tenant: int) -> int:
        return self._counts[tenant]

    def head(self, tenant: int) -> Request | None:
        """Return the first request of the tenant's highest nonempty class."""
        if not self._counts[tenant]:
            return None
        queues = self._queues[tenant]
        for priority in Priority:
            queue = queues.get(priority)
            while queue:
                ticket, request = queue[0]
                if request.ticket == ticket:
                    return request
                queue.popleft()
                self._stale -= 1
        raise AssertionError(
            f"tenant {tenant}: the request count is {self._counts[tenant]}, but its queues are empty"
        )

    def requests(self) -> Iterator[Request]:
        return (
            request
            for queues in self._queues
            for queue in queues.values()
            for ticket, request in queue
            if request.ticket == ticket
        )


_Key = tuple[bool, int, int, int, int]


class Candidates:
    """A heap of tenants. `key(request)`: the lowest is next. At most one stored key per tenant is valid."""

    def __init__(self, queues: WaitingQueues, key: Callable[[Request], _Key], tenants: int) -> None:
        self._queues, self._key = queues, key
        self._stored: list[_Key | None] = [None] * tenants
        self._heap: list[tuple[_Key, int]] = []

    def add_tenant(self) -> None:
        self._stored.append(None)

    def update(self, tenant: int) -> None:
        """Add the tenant with the current key of its first request."""
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
        """Remove and return the first request of the tenant with the lowest key. The tenant is not a candidate
        until the next `update`.
        """
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
