"""Who waits: a queue a tenant and class, what was parked at its head, and how long each has waited."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from zinc_rt.sched.request import QUEUED, Request
from zinc_rt.sched.tenant import BANDS, CLASSES, Priority


class WaitingQueues:
    """Ended requests are dropped when they come to a head, so that nothing is ever searched for."""

    def __init__(self, tenants: int) -> None:
        self._queues: list[dict[Priority, deque[Request]]] = [{} for _ in range(tenants)]
        self._counts = [0] * tenants
        self._waiting: set[int] = set()  # tenants with somebody
        self._ages: list[tuple[int, int, Request]] = []  # when it has waited through all bands

    def push(self, request: Request, *, first: bool) -> None:
        queue = self._queues[request.tenant].setdefault(request.effective, deque())
        if first:
            queue.appendleft(request)
        else:
            queue.append(request)
        self._counts[request.tenant] += 1
        self._waiting.add(request.tenant)
        if request.priority and not request.lifted:
            due = request.queued_ns + BANDS * CLASSES[request.priority].age_ns
            heapq.heappush(self._ages, (due, request.number, request))

    def remove(self, request: Request) -> None:
        """It waits no longer. The one at a head goes at once, another when it comes there."""
        queue = self._queues[request.tenant][request.effective]
        if queue and queue[0] is request:
            queue.popleft()
        else:
            queue.remove(request)
        self._counts[request.tenant] -= 1
        if not self._counts[request.tenant]:
            self._waiting.discard(request.tenant)

    def waiting(self, tenant: int) -> int:
        return self._counts[tenant]

    @property
    def count(self) -> int:
        return sum(self._counts)

    def heads(self) -> Iterator[tuple[int, Request]]:
        """Of each tenant that waits the request that would be next: of its first class the first."""
        for tenant in sorted(self._waiting):
            queues = self._queues[tenant]
            yield tenant, next(queues[each][0] for each in Priority if queues.get(each))

    def band(self, request: Request, now_ns: int) -> int:
        """How long it has waited, in bands of its class, at most BANDS."""
        return min(BANDS, (now_ns - request.queued_ns) // CLASSES[request.priority].age_ns)

    def aged(self, priority: Priority, now_ns: int) -> bool:
        """Whether a head of the class has waited through all bands."""
        return any(
            queue and queue[0].priority is priority and self.band(queue[0], now_ns) >= BANDS
            for tenant in self._waiting
            for queue in self._queues[tenant].values()
        )

    def lift_aged(self, now_ns: int) -> None:
        """Who has waited through all bands goes up a class, once for each time it waits."""
        while self._ages and self._ages[0][0] <= now_ns:
            due, _, request = heapq.heappop(self._ages)
            same_wait = due == request.queued_ns + BANDS * CLASSES[request.priority].age_ns
            if request.state in QUEUED and same_wait and not request.lifted:
                self.remove(request)
                request.lifted = True
                queued = request.queued_ns
                self.push(request, first=False)
                request.queued_ns = queued

    def everybody(self) -> Iterator[Request]:
        return (request for queues in self._queues for queue in queues.values() for request in queue)
