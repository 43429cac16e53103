"""What holds at every step boundary, counted from scratch; tests ask after every event, a server now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from zinc_rt.sched.kv_cache import UNSET, ZERO
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import QUEUED, RUNNING, TERMINAL, Request, State
from zinc_rt.sched.scheduler import Scheduler

Found = Iterator[str]


def each_request_is_in_one_place(s: Scheduler) -> Found:
    queued, bound = Counter(r.number for r in s.queues.everybody()), Counter(r.number for r in s.running())
    for number, request in s.live.items():
        places = queued[number] + bound[number]
        if places != 1 or bound[number] != (request.state in RUNNING):
            yield f"request {number}, {request.state.value}: in {queued[number]} queues, {bound[number]} slots"
    for number in (queued + bound).keys() - s.live.keys():
        yield f"request {number} has ended, and is still somewhere"


def slots_and_requests_name_each_other(s: Scheduler) -> Found:
    for slot, request in enumerate(s.slots):
        if request is not None and request.slot != slot:
            yield f"slot {slot} is request {request.number}'s, whose slot is {request.slot}"


def tenants_count_their_slots(s: Scheduler) -> Found:
    for tenant, row in enumerate(s.tenants):
        bound = sum(request.tenant == tenant for request in s.running())
        parked = sum(r.tenant == tenant and r.state is State.PARKED for r in s.queues.everybody())
        if (bound, parked) != (s.bound[tenant], s.parked[tenant]):
            noted = f"{s.bound[tenant]} and {s.parked[tenant]} noted"
            yield f"tenant {tenant} has {bound} slots and {parked} parked, {noted}"
        if row.slots_max is not None and bound > row.slots_max:
            yield f"tenant {tenant} has {bound} slots of at most {row.slots_max}"


def pages_have_the_users_they_count(s: Scheduler) -> Found:
    for group, pool in enumerate(s.cache.pools):
        yield from pool.problems()
        users: Counter[int] = Counter()
        for request in _holders(s):
            assert request.holding is not None
            users.update(page for page in request.holding.tables[group] if page != UNSET)
        wrong = [page for page in range(pool.pool.count) if users[page] != pool.pool.users[page]]
        if wrong:
            counted = f"{pool.pool.users[wrong[0]]} counted"
            yield f"group {group}: page {wrong[0]} has {users[wrong[0]]} users, {counted}"


def tables_are_whole(s: Scheduler) -> Found:
    """From the first page that a window still looks at up to what is computed, no id twice."""
    for request in _holders(s):
        holding = request.holding
        assert holding is not None
        for group, table in enumerate(holding.tables):
            needed = -(-holding.computed // s.cache.page_tokens)
            window = s.cache.groups[group].window
            first = max(0, holding.computed - window + 1) // s.cache.page_tokens if window else 0
            live = [page for page in table if page != UNSET]
            if len(table) < needed or UNSET in table[first:] or len(set(live)) != len(live):
                yield f"request {request.number}, group {group}: table {table} for {holding.computed} tokens"


def what_is_written_is_private(s: Scheduler) -> Found:
    for request in s.running():
        holding = request.holding
        assert holding is not None
        for group, table in enumerate(holding.tables):
            for page in table[holding.computed // s.cache.page_tokens :]:
                if page != UNSET and not s.cache.pools[group].pool.private(page):
                    yield f"request {request.number} would write page {page} of group {group}, which others have"


def state_rows_have_one_owner(s: Scheduler) -> Found:
    if s.cache.rows is None:
        return
    yield from s.cache.rows.problems()
    targets = Counter(s.cache.step_rows(r.holding)[1] for r in s.running() if r.holding is not None)
    for row, count in targets.items():
        if count > 1 or row == ZERO:
            yield f"row {row} is written by {count} sequences"


def plans_are_consecutive(s: Scheduler, plan: StepPlan) -> Found:
    """Each piece starts where its request is, the step is no longer than it may be, and every decode is in it that
    is not held and has its pages."""
    for piece in plan.pieces:
        if piece.first != piece.request.computed or piece.last <= piece.first:
            span = f"{piece.first} to {piece.last}"
            yield f"request {piece.request.number} computes {span}, it is at {piece.request.computed}"
    if plan.tokens > s.limits.step_tokens:
        yield f"{plan.tokens} tokens in a step of {s.limits.step_tokens}"
    planned = {piece.request.number for piece in plan.pieces}
    for request in s.running():
        if (
            request.state is State.DECODE
            and not request.held
            and not request.left_out
            and request.number not in planned
        ):
            yield f"request {request.number} decodes, and is not in the step"


def tokens_only_grow(s: Scheduler) -> Found:
    for request in s.live.values():
        if request.delivered > request.made or request.made > request.limit:
            counts = f"{request.delivered} delivered, {request.made} made"
            yield f"request {request.number}: {counts}, limit {request.limit}"


def heads_wait(s: Scheduler) -> Found:
    for request in s.queues.everybody():
        if request.state in TERMINAL or request.state not in QUEUED:
            yield f"request {request.number} is {request.state.value}, and in a queue"


INVARIANTS: tuple[Callable[[Scheduler], Found], ...] = (
    each_request_is_in_one_place,
    slots_and_requests_name_each_other,
    tenants_count_their_slots,
    pages_have_the_users_they_count,
    tables_are_whole,
    what_is_written_is_private,
    state_rows_have_one_owner,
    tokens_only_grow,
    heads_wait,
)


def violations(s: Scheduler) -> list[str]:
    """Every one that does not hold now, by its name."""
    return [f"{each.__name__}: {text}" for each in INVARIANTS for text in each(s)]


def _holders(s: Scheduler) -> Iterator[Request]:
    return (request for request in s.live.values() if request.holding is not None)
