"""Preemption: choose which request loses its slot to a candidate, or its pages to a growing sequence.

Resuming a preempted request costs nothing, so slots may move often. The rules prevent cycles: guarantees and
classes are ordered, and within a class a slot moves only to a tenant whose share does not exceed the other's
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zinc_rt.sched.request import Request, State
from zinc_rt.sched.state import Kind, SchedulerState


class LosingKind(NamedTuple):
    """A kind of running requests above the guarantee of its tenant, with the tenant's shares after losing one
    slot.
    """

    kind: Kind
    share: int
    slot_share: int


def list_possible_losers(s: SchedulerState) -> list[LosingKind]:
    """Return the kinds that may lose a slot, in this order: lowest class first, then the tenant with the largest
    share. The result is valid until a request is bound or pages are allocated or released."""
    above = [kind for kind in s.kinds if s.bound[kind[0]] > s.tenants[kind[0]].slots_guaranteed]
    above.sort(key=lambda kind: (kind[1], s.compute_share(kind[0], kind[1])), reverse=True)
    return [
        LosingKind(
            (tenant, priority, effective),
            s.compute_share(tenant, priority, more_slots=-1),
            s.compute_slot_share(tenant, priority, more=-1),
        )
        for tenant, priority, effective in above
    ]


def find_victim(s: SchedulerState, candidate: Request, losers: Iterable[LosingKind]) -> Request | None:
    """Return the running request that loses its slot to the candidate: the request with the fewest generated
    tokens of the first kind that must give up a slot.
    """
    tenant, priority = candidate.tenant, candidate.priority
    guaranteed = s.bound[tenant] < s.tenants[tenant].slots_guaranteed
    slices = not s.bound[tenant] and not s.several
    share, slot_share = (
        s.compute_share(tenant, priority, more_slots=1),
        s.compute_slot_share(tenant, priority, more=1),
    )
    for loser in losers:
        # by slots alone too: where pages decide both shares, a slot would go back and forth for ever
        has_more = loser.share >= share and loser.slot_share >= slot_share
        if _must_give_slot(s, loser.kind, candidate, guaranteed, has_more) or (
            slices and _slice_is_over(s, loser.kind, candidate)
        ):
            return min(s.kinds[loser.kind], key=lambda request: (request.generated, request.slot))
    return None


def _must_give_slot(s: SchedulerState, kind: Kind, candidate: Request, guaranteed: bool, has_more: bool) -> bool:
    """Return whether a request of that tenant and class must give up its slot, regardless of its generated tokens.
    `has_more`: afterwards, its tenant still has at least as much as the candidate's.
    """
    mine, priority, effective = kind
    theirs = candidate.tenant
    if guaranteed:
        return mine != theirs
    above_floor = s.running_by_class[priority] > s.floors[priority]
    if priority is not candidate.priority and s.is_below_floor(candidate):
        return above_floor
    if effective > candidate.effective:  # who went up a class for having waited has its turn first
        return above_floor or not (s.queues.aged[priority] or effective < priority)
    return effective == candidate.effective and mine != theirs and has_more


def _slice_is_over(s: SchedulerState, kind: Kind, candidate: Request) -> bool:
    """With fewer slots than tenants, each request gives up its slot after its time slice."""
    if kind[2] != candidate.effective:
        return False
    (request,) = s.kinds[kind]
    return request.generated - request.bound_made >= s.limits.slice_tokens


def relieve(s: SchedulerState, needing: Request) -> bool:
    """Free pages for a growing sequence: first pinned pages, then pages reserved for a waiting request, then those
    of a preempted request, then of a running one. Return False if there are none.
    """
    if s.pins.drop_oldest():
        return True
    if s.collector is not None:
        s.stop_collecting()
        return True
    loser = find_eviction(s, needing)
    if loser is None:
        return False
    s.evict(loser)
    return True


def find_eviction(s: SchedulerState, needing: Request) -> Request | None:
    """Return the request to evict for a growing sequence: preempted requests first, then running ones; never
    one of another tenant within its reservation, or of a higher class."""
    result = _find_highest_charged(s, _list_preemptible(s, s.parked_requests, needing))
    return result or _find_highest_charged(s, _list_preemptible(s, s.running(), needing))


def _list_preemptible(s: SchedulerState, requests: Iterable[Request], needing: Request) -> Iterator[Request]:
    for request in requests:
        if request is needing or request.priority < needing.priority:
            continue
        runs_as_well = request.priority is needing.priority and request.state is not State.PARKED
        earlier = (request.number, request.choice) < (needing.number, needing.choice)
        if runs_as_well and earlier:  # so that two never take from each other in turns
            continue
        above = any(
            pool.count_charge(request.tenant) > pool.find_quota(request.tenant).reserved for pool in s.cache.pools
        )
        if above or request.tenant == needing.tenant:
            yield request


def _find_highest_charged(s: SchedulerState, requests: Iterable[Request]) -> Request | None:
    """Order by lowest class, then by tenant furthest above its reservation, then by fewest generated tokens."""

    def charge_key(request: Request) -> tuple[int, int, int, int]:
        above = sum(
            max(0, pool.count_charge(request.tenant) - pool.find_quota(request.tenant).reserved)
            for pool in s.cache.pools
        )
        return int(request.priority), above, -request.generated, request.number

    return max(requests, key=charge_key, default=None)
