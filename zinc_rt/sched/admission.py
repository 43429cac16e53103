"""Admission: assign slots to the tenants' first requests by key, with all pages of the prompt reserved."""

from __future__ import annotations

from zinc_rt.sched import preempt
from zinc_rt.sched.kv.capsule import restore
from zinc_rt.sched.kv.prefix import make_token_keys
from zinc_rt.sched.queues import find_band
from zinc_rt.sched.request import POSITION, Request, State
from zinc_rt.sched.state import SchedulerState

PASSED_OVER = 4  # candidates a step that others may pass


def admit(s: SchedulerState) -> None:
    """Admit requests until none fits or PASSED_OVER requests have been skipped. If nothing runs, all are
    tried."""
    if s.probation:
        _admit_alone(s)
        return
    if s.collector is not None:
        _collect(s)
    if not s.queues.count:
        return
    if not _admit_heads(s) and not s.runs and s.collector is not None:
        s.stop_collecting()  # it is no longer its tenant's head, and what is set aside for it holds up everybody
        _admit_heads(s)


def _admit_heads(s: SchedulerState) -> bool:
    """Return whether any request was admitted."""
    some = False
    passed: set[int] = set()
    losers: list[preempt.LosingKind] = []
    while len(passed) < PASSED_OVER or not s.runs:
        request = s.candidates.pop()
        if request is None:
            break
        tenant = request.tenant
        maximum = s.tenants[tenant].slots_max
        if maximum is not None and s.bound[tenant] >= maximum:
            continue  # a candidate again when it gives a slot back
        if tenant in passed or _is_rate_limited(s, tenant):
            continue
        if _try_admit(s, request, losers) or _try_admit_parked(s, request, losers):
            some = True
            s.candidates.update(tenant)
        else:
            passed.add(tenant)
    for tenant in passed:
        s.candidates.update(tenant)
    return some


def _try_admit_parked(s: SchedulerState, head: Request, losers: list[preempt.LosingKind]) -> bool:
    """Return the tenant's first preempted request if the head of its queue waits for pages, which may be held by
    preempted requests.
    """
    if not s.parked[head.tenant] or head.state is State.PARKED:
        return False
    parked = next(
        (
            parked_request
            for parked_request in s.parked_requests
            if parked_request.tenant == head.tenant and not parked_request.held
        ),
        None,
    )
    return parked is not None and _try_admit(s, parked, losers)


def _is_rate_limited(s: SchedulerState, tenant: int) -> bool:
    """Return whether a bucket is empty; the tenant becomes a candidate again when it is not."""
    for bucket in s.buckets[tenant]:
        if bucket is not None and not bucket.is_allowed(s.now_ns):
            s.timers.at(
                bucket.allows_from_ns(s.now_ns),
                lambda: s.candidates.update(tenant),
                lambda: s.queues.waiting(tenant) > 0,
            )
            return True
    return False


def _try_admit(s: SchedulerState, request: Request, losers: list[preempt.LosingKind]) -> bool:
    """Admit a request, or change nothing: reserve its pages before any request is preempted for a slot. `losers`:
    the result of earlier calls, empty if there were none or it may be outdated.
    """
    loser = None
    if not s.slots.free:
        losers[:] = losers or preempt.list_possible_losers(s)
        loser = preempt.find_victim(s, request, losers)
        if loser is None:
            return False
    losers.clear()
    if request.holding is None:
        if _has_no_free_row(s) and not _free_row(s, request, loser):
            return False
        if loser is not None and loser.slot < 0:
            loser = None  # it was evicted for its row
        if not hold_pages(s, request):
            _start_collecting_if_due(s, request)
            return False
    elif not _try_grow(s, request):
        return False
    if loser is not None and loser.slot >= 0:
        s.park(loser)
    s.bind(request)
    return True


def _try_grow(s: SchedulerState, request: Request) -> bool:
    """A request that was preempted for lack of a page is given the page and the slot together or neither, because
    others may have pages to run with.
    """
    holding = request.holding
    assert holding is not None
    grown = request.computed < holding.room or s.cache.grow(holding)
    while not grown and preempt.relieve(s, request):
        grown = s.cache.grow(holding)
    return grown


def hold_pages(s: SchedulerState, request: Request) -> bool:
    """Reserve all pages of the prompt plus one, and a state row.

    Beyond its tenant's reservation, one page per running request is left free, so that running requests are rarely
    evicted.
    """
    collects = request is s.collector
    if collects:
        s.stop_collecting()
    held = _try_hold(s, request, spare=0 if collects else sum(s.bound))
    while not held and (s.pins.drop_oldest(request.tenant) or (not s.runs and s.pins.drop_oldest())):
        held = _try_hold(s, request, spare=0 if collects else sum(s.bound))
    if collects and not held:
        start_collecting(s, request)
    return held


def _try_hold(s: SchedulerState, request: Request, *, spare: int) -> bool:
    capsule = request.capsule
    if capsule is not None and not capsule.lost:
        restored = restore(s.cache, capsule, prompt=len(request.tokens), maximum=request.most_placed)
        if restored is None:
            return False
        request.holding, copies = restored
        s.copies += copies
        request.capsule = None
    else:
        keys = make_token_keys(request.tokens, 0, request.decoded_from)
        match = s.cache.prefix.match(request.digests, keys, now_ns=s.now_ns)
        ttl_ns = s.tenants[request.tenant].cache_ttl_ns
        request.holding = s.cache.admit(
            request.tenant,
            request.within,
            request.tokens,
            request.digests,
            match,
            spare=spare,
            ttl_ns=ttl_ns,
            maximum=request.most_placed,
            decoded_from=request.decoded_from,
        )
        if request.holding is None:
            return False
    request.row[POSITION] = request.holding.computed
    if request.state is State.WAITING:
        request.cached = request.holding.computed
        if request.cached:
            s.notify("hit", request, request.cached, counter="prompt_tokens_cached")
    return True


# --- state rows


def _has_no_free_row(s: SchedulerState) -> bool:
    return s.cache.rows is not None and not s.cache.rows.free and not s.cache.rows.idle


def _free_row(s: SchedulerState, request: Request, loser: Request | None) -> bool:
    """Free a state row for a new request: from the preempted request with the fewest generated tokens, else from
    the request that loses its slot.
    """
    parked = [
        parked_request for parked_request in s.parked_requests if parked_request.priority >= request.priority
    ]
    if parked:
        s.evict(max(parked, key=lambda item: (item.priority, -item.generated, item.number)))
    elif loser is not None:
        s.evict(loser)
    return not _has_no_free_row(s)


# --- who waits for pages for long


def _start_collecting_if_due(s: SchedulerState, request: Request) -> None:
    """After its first band, released pages are reserved for it, so other requests no longer pass it. Only one
    request at a time does this, from the highest class.
    """
    if request.capsule is not None or find_band(request, s.now_ns, s.limits.classes) < 1:
        return
    if s.collector is None or request.effective < s.collector.effective:
        s.stop_collecting()
        start_collecting(s, request)


def start_collecting(s: SchedulerState, request: Request) -> None:
    """Set aside the pages that are free now."""
    s.collector, s.collected = request, [0] * len(s.cache.pools)
    _collect(s)


def _collect(s: SchedulerState) -> None:
    request = s.collector
    assert request is not None
    needs = s.cache.count_pages_needed(min(len(request.tokens) + 1, request.most_placed))
    for group, (pool, need) in enumerate(zip(s.cache.pools, needs, strict=True)):
        more = min(need - s.collected[group], pool.room(request.tenant))
        if more > 0:
            pool.reserve(request.tenant, more)
            s.collected[group] += more


# --- after steps that failed


def _admit_alone(s: SchedulerState) -> None:
    """Admit the first request in single-request retry, and no other."""
    request = s.probation[0]
    if request.slot < 0 and s.slots.free and not request.held:
        s.stop_collecting()
        if request.holding is not None or hold_pages(s, request):
            s.bind(request)
