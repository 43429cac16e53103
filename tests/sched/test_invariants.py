"""Each invariant is able to fail: what it is about is broken, and it alone says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scheduler_machine import PAGE, SchedulerMachine

from zinc_rt.sched.checks.invariants import INVARIANTS, find_violations
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.request import POSITION, Request, State
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest


def busy_machine() -> SchedulerMachine:
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
    assert not find_violations(m.scheduler)
    return m


def decoding_request(machine: SchedulerMachine) -> Request:
    """A request that decodes within a page, after at least one full page."""
    result = [
        r
        for r in machine.scheduler.running()
        if r.state is State.DECODE and r.computed > PAGE and r.computed % PAGE
    ]
    assert result
    return result[0]


def first_waiting(machine: SchedulerMachine) -> Request:
    return next(iter(machine.scheduler.queues.requests()))


def remove_from_queue(machine: SchedulerMachine) -> None:
    machine.scheduler.queues.remove(first_waiting(machine))


def assign_slot_of_another_tenant(machine: SchedulerMachine) -> None:
    machine.scheduler.records[decoding_request(machine).slot]["tenant"] += 1


def increment_page_users(machine: SchedulerMachine) -> None:
    holding = decoding_request(machine).holding
    assert holding is not None
    machine.cache.pools[0].pool.users[holding.tables[0][0]] += 1


def uncache_idle_page(machine: SchedulerMachine) -> None:
    pool = machine.cache.pools[0].pool
    pool.cached[next(pool.list_idle_ids())] = False


def drop_pages(machine: SchedulerMachine) -> None:
    decoding_request(machine).row[POSITION] += 3 * PAGE


def corrupt_token_counts(machine: SchedulerMachine) -> None:
    request = decoding_request(machine)
    assert request.holding is not None
    machine.cache.pools[0].pool.cached[request.holding.tables[0][request.computed // PAGE]] = True


def use_page_of_another_namespace(machine: SchedulerMachine) -> None:
    pages: dict[int, Request] = {}
    for request in machine.scheduler.requests():
        for page in request.holding.tables[0] if request.holding else ():
            if page in pages:
                request.within = make_namespace("m", "canonical-1", "f32", PAGE)
                return
            pages[page] = request
    raise AssertionError("nobody shares a page")


def corrupt_reservation_count(machine: SchedulerMachine) -> None:
    machine.cache.pools[0]._guarded += 1


def pay_twice(machine: SchedulerMachine) -> None:
    machine.cache.pools[0].paid[1] += 1


def add_unowned_row(machine: SchedulerMachine) -> None:
    holding = decoding_request(machine).holding
    assert holding is not None and machine.cache.rows is not None
    machine.cache.rows.users[holding.state] += 1


def add_slot(machine: SchedulerMachine) -> None:
    machine.scheduler.bound[1] += 1


def advance_position(machine: SchedulerMachine) -> None:
    assert machine.scheduler.schedule().decodes
    machine.scheduler.plan.position[0] += 1


def omit_from_step(machine: SchedulerMachine) -> None:
    assert machine.scheduler.schedule().decodes
    machine.scheduler.plan.row_slot[0] += 1


def deliver_extra_token(machine: SchedulerMachine) -> None:
    request = decoding_request(machine)
    request.delivered = request.generated + 1


def charge_twice(machine: SchedulerMachine) -> None:
    assert machine.scheduler.ledger is not None
    machine.scheduler.ledger.count("decode_inputs", 1)


def reduce_service(machine: SchedulerMachine) -> None:
    machine.scheduler.service.counters[1] -= 1


def expire_wait(machine: SchedulerMachine) -> None:
    machine.scheduler.queues._counts[first_waiting(machine).tenant] += 1


def change_ordering_of_pages(machine: SchedulerMachine) -> None:
    holding = decoding_request(machine).holding
    assert holding is not None and holding.last is not None
    holding.decoded_from = PAGE


PLANTED: tuple[Callable[[SchedulerMachine], None], ...] = (
    remove_from_queue,
    assign_slot_of_another_tenant,
    increment_page_users,
    uncache_idle_page,
    drop_pages,
    corrupt_token_counts,
    use_page_of_another_namespace,
    corrupt_reservation_count,
    pay_twice,
    add_unowned_row,
    add_slot,
    advance_position,
    omit_from_step,
    deliver_extra_token,
    charge_twice,
    reduce_service,
    expire_wait,
    change_ordering_of_pages,
)


@pytest.mark.parametrize("number", range(1, len(INVARIANTS) + 1))
def test_each_violation_is_reported_by_only_its_invariant(number: int) -> None:
    m = busy_machine()
    PLANTED[number - 1](m)
    result = find_violations(m.scheduler)
    assert [item[:3] for item in result] == [f"I{number:02}"], result
