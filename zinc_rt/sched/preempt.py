"""Who gives way: a slot to a candidate, pages to a sequence that grows.

Parking costs nothing to undo, so slots may move often; the rules make sure that none moves in a circle: guarantees
and classes are ordered, and within a class a slot moves only to a tenant that has no more than the other
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from zinc_rt.sched.kv_cache import KvCache
from zinc_rt.sched.queues import WaitingQueues
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.share import less
from zinc_rt.sched.tenant import Priority, Tenant


class Occupancy(Protocol):
    """What of a scheduler decides who gives way. `bound`: slots by tenant; `floors`: slots that a class keeps."""

    cache: KvCache
    queues: WaitingQueues
    tenants: list[Tenant]
    bound: list[int]
    floors: dict[Priority, int]
    now_ns: int

    @property
    def slice_tokens(self) -> int: ...

    def running(self) -> Iterator[Request]: ...

    def share(self, tenant: int, priority: Priority, *, more_slots: int = 0) -> tuple[int, int]: ...


def victim(s: Occupancy, candidate: Request) -> Request | None:
    """The worst of the running requests that may have to give their slot to the candidate: of the lowest class,
    then of the tenant with the largest share, then with the least made."""
    above = [bound > tenant.slots_guaranteed for bound, tenant in zip(s.bound, s.tenants, strict=True)]
    guaranteed = s.bound[candidate.tenant] < s.tenants[candidate.tenant].slots_guaranteed
    may_move: dict[tuple[int, Priority, Priority], bool] = {}  # by what decides it for all of a tenant and class
    worst: Request | None = None
    for request in s.running():
        if not above[request.tenant]:
            continue
        kind = request.tenant, request.priority, request.effective
        if kind not in may_move:
            may_move[kind] = _kind_gives_slot(s, request, candidate, guaranteed)
        if (may_move[kind] or _slice_is_over(s, request, candidate)) and (
            worst is None or _worse(s, request, worst)
        ):
            worst = request
    return worst


def _worse(s: Occupancy, one: Request, other: Request) -> bool:
    if one.priority != other.priority:
        return one.priority > other.priority
    if one.tenant != other.tenant:
        mine, theirs = s.share(one.tenant, one.priority), s.share(other.tenant, other.priority)
        if less(mine, theirs) or less(theirs, mine):
            return less(theirs, mine)
    return (one.made, one.slot) < (other.made, other.slot)


def _kind_gives_slot(s: Occupancy, request: Request, candidate: Request, guaranteed: bool) -> bool:
    """Whether a request of its tenant and class may have to, whatever it has made."""
    mine, theirs = request.tenant, candidate.tenant
    if guaranteed:
        return mine != theirs
    if request.effective > candidate.effective:
        running = sum(each.priority is request.priority for each in s.running())
        return running > s.floors[request.priority] or not s.queues.aged(request.priority, s.now_ns)
    if request.effective != candidate.effective or mine == theirs:
        return False
    after_mine = s.share(mine, request.priority, more_slots=-1)
    return not less(after_mine, s.share(theirs, candidate.priority, more_slots=1))


def _slice_is_over(s: Occupancy, request: Request, candidate: Request) -> bool:
    """With fewer slots than tenants each gives way when it has made its slice."""
    if request.effective != candidate.effective or s.bound[candidate.tenant] or max(s.bound) > 1:
        return False
    return request.made - request.bound_made >= s.slice_tokens


def to_evict(s: Occupancy, needing: Request) -> Request | None:
    """Whose pages go to a sequence that cannot grow: first of the parked, then of the running; nobody's who is
    within its reservation, and nobody's of a higher class."""
    parked = (request for request in s.queues.everybody() if request.state is State.PARKED)
    found = _worst_charged(s, _may_lose(s, parked, needing))
    return found or _worst_charged(s, _may_lose(s, s.running(), needing))


def _may_lose(s: Occupancy, requests: Iterable[Request], needing: Request) -> Iterator[Request]:
    for request in requests:
        if request is needing or request.priority < needing.priority:
            continue
        runs_as_well = request.priority is needing.priority and request.state is not State.PARKED
        if runs_as_well and request.number < needing.number:  # so that two never take from each other in turns
            continue
        if any(pool.charge(request.tenant) > pool.quota(request.tenant).reserved for pool in s.cache.pools):
            yield request


def _worst_charged(s: Occupancy, requests: Iterable[Request]) -> Request | None:
    """Of the lowest class, then of the tenant furthest above its reservation, then with the least made."""

    def key(request: Request) -> tuple[int, int, int, int]:
        above = sum(
            max(0, pool.charge(request.tenant) - pool.quota(request.tenant).reserved) for pool in s.cache.pools
        )
        return int(request.priority), above, -request.made, request.number

    return max(requests, key=key, default=None)
