"""Recovery from a failed step: all requests are recomputed from their tokens; a request in two failed steps
is retried alone."""

from __future__ import annotations

from zinc_rt.sched.kv.capsule import drop
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.state import SchedulerState

FAILURES = 2  # failed steps that a request was in until it runs alone


def recover_step(s: SchedulerState, plan: StepPlan, *, reopened: bool) -> None:
    """Drop the device contents: pages, cached prefixes, states, capsules. Tokens are kept on the host."""
    s.counts.failed_steps += 1
    present = _list_step_requests(s, plan)
    alone = len(s.probation) > 0
    for request in list(s.running()):
        s.evict(request)
    for request in list(s.parked_requests):
        s.evict(request)
    s.stop_collecting()
    while s.pins.drop_oldest():
        pass
    for capsule in s.capsules:
        drop(s.cache, capsule)
    s.capsules.clear()
    s.copies.clear()
    plan.clear(plan.number)
    s.cache.forget()
    for request in present:
        request.failures += 1
        if not reopened:
            s.end(request, State.FAILED, "device_lost")
        elif alone:
            s.end(request, State.FAILED, "device_hang")
        elif request.failures >= FAILURES and request not in s.probation:
            s.probation.append(request)
    if not reopened:
        for request in list(s.requests()):
            s.end(request, State.FAILED, "device_lost")


def _list_step_requests(s: SchedulerState, plan: StepPlan) -> list[Request]:
    """Whoever was in the step, by slot."""
    slots = sorted({*plan.slot[: plan.tokens].tolist(), *plan.row_slot[: plan.rows].tolist()})
    return [request for slot in slots if (request := s.slots.requests[slot]) is not None]


def end_retry(s: SchedulerState, *, drew: bool) -> None:
    """End the single-request retry of a request whose step succeeded, once it has sampled a token."""
    if drew:
        s.probation.pop(0).failures = 0
