"""Fork a request's choices: they start after the prompt except its last token, which each computes itself
before it samples."""

from __future__ import annotations

from zinc_rt.sched.kv.capsule import fork
from zinc_rt.sched.request import POSITION, Request, State
from zinc_rt.sched.state import SchedulerState


def fork_choices(s: SchedulerState, request: Request) -> None:
    """Create the other choices, which share the full pages and copy the last one. They are preempted until slots
    are free; if pages are insufficient, they wait like new requests.
    """
    siblings, request.siblings = request.siblings, []
    s.sync(request)
    holding = request.holding
    assert holding is not None
    result = fork(s.cache, holding, s.slots.history[request.slot, : holding.computed], len(siblings))
    if result is None:
        request.siblings = siblings
        begin_choices(s, request)
        return
    holdings, copies = result
    s.copies += copies
    s.sync_rows(request)
    for sibling, own in reversed(list(zip(siblings, holdings, strict=True))):
        sibling.holding, sibling.cached = own, own.computed
        sibling.row[POSITION] = own.computed
        sibling.move(State.PARKED)
        s.parked[sibling.tenant] += 1
        s.parked_requests[sibling] = None
        s.queue(sibling, first=True)


def begin_choices(s: SchedulerState, request: Request) -> None:
    """Queue the other choices like any request; the prompt's full pages are cached."""
    siblings, request.siblings = request.siblings, []
    for sibling in siblings:
        s.queue(sibling, first=False)
