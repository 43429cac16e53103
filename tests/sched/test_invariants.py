"""Each invariant is able to fail: what it is about is broken, and it alone says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scheduler_machine import PAGE, SchedulerMachine

from zinc_rt.sched.checks.invariants import INVARIANTS, violations
from zinc_rt.sched.kv.prefix import namespace
from zinc_rt.sched.request import POSITION, Request, State
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest


def busy() -> SchedulerMachine:
    """Two requests of one tenant with a common prefix, decodes, a prompt in progress, a preempted request, waiting
    requests, idle pages and saved states.
    """
    m = SchedulerMachine()
    prompts = [
        (1, [1] * 6),
        (1, [1] * 2 * PAGE + [0]),
        (1, [1] * 2 * PAGE + [0, 0]),
        (0, [1, 0, 1]),
        (2, [0] * 18),
    ]
    for _ in range(2):
        for tenant, prompt in prompts:
            m.number += 1
            m.scheduler.submit(NewRequest(m.number, tenant, prompt, m.spaces[tenant], Sampling(14, seed=1)))
            m.asked[m.number], m.generated[m.number, 0] = (len(prompt), 14, 1, 1), []
            m.one_step(1)
    m.scheduler.park(next(r for r in m.scheduler.running() if r.state is State.DECODE))
    m.scheduler.cancel(1)
    m.one_step(1)
    assert not violations(m.scheduler)
    return m


def decoding(m: SchedulerMachine) -> Request:
    """A request that decodes within a page, after at least one full page."""
    result = [
        r for r in m.scheduler.running() if r.state is State.DECODE and r.computed > PAGE and r.computed % PAGE
    ]
    assert result
    return result[0]


def waiting(m: SchedulerMachine) -> Request:
    return next(iter(m.scheduler.queues.requests()))


def lost_from_its_queue(m: SchedulerMachine) -> None:
    m.scheduler.queues.remove(waiting(m))


def another_tenants_slot(m: SchedulerMachine) -> None:
    m.scheduler.records[decoding(m).slot]["tenant"] += 1


def one_user_too_many(m: SchedulerMachine) -> None:
    holding = decoding(m).holding
    assert holding is not None
    m.cache.pools[0].pool.users[holding.tables[0][0]] += 1


def idle_and_not_cached(m: SchedulerMachine) -> None:
    pool = m.cache.pools[0].pool
    pool.cached[next(pool.idle_ids())] = False


def tokens_without_pages(m: SchedulerMachine) -> None:
    decoding(m).row[POSITION] += 3 * PAGE


def record_written_and_cached_tokens(m: SchedulerMachine) -> None:
    request = decoding(m)
    assert request.holding is not None
    m.cache.pools[0].pool.cached[request.holding.tables[0][request.computed // PAGE]] = True


def another_namespaces_page(m: SchedulerMachine) -> None:
    pages: dict[int, Request] = {}
    for request in m.scheduler.requests():
        for page in request.holding.tables[0] if request.holding else ():
            if page in pages:
                request.within = namespace("m", "canonical-1", "f32", PAGE)
                return
            pages[page] = request
    raise AssertionError("nobody shares a page")


def reservations_counted_wrong(m: SchedulerMachine) -> None:
    m.cache.pools[0]._guarded += 1


def paid_twice(m: SchedulerMachine) -> None:
    m.cache.pools[0].paid[1] += 1


def a_row_of_nobody(m: SchedulerMachine) -> None:
    holding = decoding(m).holding
    assert holding is not None and m.cache.rows is not None
    m.cache.rows.users[holding.state] += 1


def a_slot_too_many(m: SchedulerMachine) -> None:
    m.scheduler.bound[1] += 1


def a_position_ahead(m: SchedulerMachine) -> None:
    assert m.scheduler.schedule().decodes
    m.scheduler.plan.position[0] += 1


def left_out_of_the_step(m: SchedulerMachine) -> None:
    assert m.scheduler.schedule().decodes
    m.scheduler.plan.row_slot[0] += 1


def delivered_and_not_made(m: SchedulerMachine) -> None:
    request = decoding(m)
    request.delivered = request.generated + 1


def charged_twice(m: SchedulerMachine) -> None:
    assert m.scheduler.ledger is not None
    m.scheduler.ledger.count("decode_inputs", 1)


def service_falls(m: SchedulerMachine) -> None:
    m.scheduler.service.counters[1] -= 1


def a_wait_that_ended(m: SchedulerMachine) -> None:
    m.scheduler.queues._counts[waiting(m).tenant] += 1


PLANTED: tuple[Callable[[SchedulerMachine], None], ...] = (
    lost_from_its_queue,
    another_tenants_slot,
    one_user_too_many,
    idle_and_not_cached,
    tokens_without_pages,
    record_written_and_cached_tokens,
    another_namespaces_page,
    reservations_counted_wrong,
    paid_twice,
    a_row_of_nobody,
    a_slot_too_many,
    a_position_ahead,
    left_out_of_the_step,
    delivered_and_not_made,
    charged_twice,
    service_falls,
    a_wait_that_ended,
)


@pytest.mark.parametrize("number", range(1, len(INVARIANTS) + 1))
def test_each_violation_is_reported_by_only_its_invariant(number: int) -> None:
    m = busy()
    PLANTED[number - 1](m)
    result = violations(m.scheduler)
    assert [item[:3] for item in result] == [f"I{number:02}"], result
