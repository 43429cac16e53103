"""Invariants of the scheduler at step boundaries, recomputed from scratch. Tests check them after every
event, a server periodically.

Each function yields a sentence for each violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag
from zinc_rt.sched.kv.kv_cache import UNSET, ZERO
from zinc_rt.sched.kv.prefix import NO_ROW, TOKEN, make_token_keys
from zinc_rt.sched.request import QUEUED, RUNNING, TERMINAL, Request, State
from zinc_rt.sched.state import SchedulerState
from zinc_rt.sched.tenant import Priority


def i01(s: SchedulerState) -> str | None:
    """Every live request is in exactly one of: a queue, a slot, the paused set, the set that waits for its
    first choice."""
    places: Counter[Request] = Counter(s.queues.requests())
    places.update(s.running())
    places.update(s.aside.keys())
    for request in s.requests():
        places.update(request.siblings)
    for request in s.requests():
        if places[request] != 1 or (request.slot >= 0) != (request.state in RUNNING):
            return f"request {request.number}.{request.choice}, {request.state.value}: in {places[request]} places"
    alive = set(s.requests())
    for request in places:
        if request not in alive:
            return f"request {request.number}.{request.choice} has ended, but is still registered"
    return None


def i02(s: SchedulerState) -> str | None:
    """Slots and requests refer to each other, and a slot's record matches its request."""
    for slot, request in enumerate(s.slots.requests):
        if (request is None) != (slot in s.slots.free):
            return f"slot {slot} is {'free' if request else 'bound'}, and {'bound' if request else 'free'}"
        if request is None:
            continue
        record = s.records[slot]
        if request.slot != slot or int(record["request"]) != request.number:
            return f"slot {slot} belongs to request {request.number}, whose slot is {request.slot}"
        if int(record["tenant"]) != request.tenant or int(s.slots.tenants[slot]) != request.tenant:
            return f"slot {slot} is of tenant {record['tenant']}, its request of {request.tenant}"
        if request.held and not record["flags"] & SlotFlag.BACKPRESSURE:
            return f"slot {slot} has a paused request, and no backpressure"
        waits = request.held or request.left_out or request in s.late
        decodes = request.state is State.DECODE and not waits
        if bool(s.slots.decoding[slot]) != decodes:
            return f"slot {slot}: {request.state.value}, and among the decodes: {s.slots.decoding[slot]}"
    return None


def i03(s: SchedulerState) -> str | None:
    """A page's user count equals the number of tables that contain it."""
    for group, pool in enumerate(s.cache.pools):
        users: Counter[int] = Counter()
        for _, tables in _list_tables(s):
            users.update(page for page in tables[group] if page != UNSET)
        for page, counted in enumerate(pool.pool.users):
            if users[page] != counted:
                return f"group {group}: page {page} is in {users[page]} tables, {counted} users are counted"
    return None


def i04(s: SchedulerState) -> str | None:
    """Every page is exactly one of free, idle and used; an idle page has a cache entry."""
    for group, pool in enumerate(s.cache.pools):
        for problem in pool.pool.find_problems():
            return f"group {group}: {problem}"
    return None


def i05(s: SchedulerState) -> str | None:
    """A table covers all pages from the first in the window to the computed position, without duplicates."""
    for request in s.requests():
        holding = request.holding
        if holding is None:
            continue
        computed = request.computed
        for group, table in enumerate(holding.tables):
            needed = -(-computed // s.cache.page_tokens)
            window = s.cache.groups[group].window
            first = max(0, computed - window + 1) // s.cache.page_tokens if window else 0
            live = [page for page in table if page != UNSET]
            if len(table) < needed or UNSET in table[first:] or len(set(live)) != len(live):
                return f"request {request.number}, group {group}: table {table} for {computed} tokens"
    return None


def i06(s: SchedulerState) -> str | None:
    """A page that a slot may write has one user and no cache entry."""
    for request in s.running():
        assert request.holding is not None
        for group, table in enumerate(request.holding.tables):
            for page in table[request.computed // s.cache.page_tokens :]:
                if page != UNSET and not s.cache.pools[group].pool.is_private(page):
                    return f"request {request.number} would write page {page} of group {group}, which is shared"
    return None


def i07(s: SchedulerState) -> str | None:
    """Pages are shared within a namespace only."""
    for group, pool in enumerate(s.cache.pools):
        roots: dict[int, bytes] = {}
        for request in s.requests():
            for page in request.holding.tables[group] if request.holding else ():
                if page != UNSET and roots.setdefault(page, request.within.root) != request.within.root:
                    return f"group {group}: page {page} is in two namespaces, one of request {request.number}"
        for namespace_problem in pool.find_namespace_problems():
            return f"group {group}: {namespace_problem}"
    return None


def i08(s: SchedulerState) -> str | None:
    """Reservations are satisfied: inequality R, with the tenants' references recomputed."""
    for group, pool in enumerate(s.cache.pools):
        named: dict[int, set[int]] = {tenant: set() for tenant in range(len(s.tenants))}
        promised = dict.fromkeys(named, 0)
        for tenant, tables in _list_tables(s):
            named[tenant].update(page for page in tables[group] if page != UNSET)
        for request in s.requests():
            if request.holding is not None:
                promised[request.tenant] += request.holding.promised[group]
        if s.collector is not None:
            promised[s.collector.tenant] += s.collected[group]
        for tenant in named:
            charge = len(named[tenant]) + promised[tenant]
            if charge != pool.count_charge(tenant):
                return (
                    f"group {group}: tenant {tenant} has {charge} pages, {pool.count_charge(tenant)} are counted"
                )
        for guard_problem in pool.find_guard_problems():
            return f"group {group}: {guard_problem}"
    return None


def i09(s: SchedulerState) -> str | None:
    """Every page has one payer: a tenant, a group, the cache, or none."""
    for group, pool in enumerate(s.cache.pools):
        for payer_problem in pool.find_payer_problems():
            return f"group {group}: {payer_problem}"
    return None


def i10(s: SchedulerState) -> str | None:
    """Each state row has at most one writer and no other readers, and the zero row is never written."""
    if s.cache.rows is None:
        return None
    for problem in s.cache.rows.find_problems():
        return f"state rows: {problem}"
    users: Counter[int] = Counter()
    targets: Counter[int] = Counter()
    sources: Counter[int] = Counter()
    for request in s.requests():
        if request.holding is not None:
            holding = request.holding
            users.update(
                row for row in (holding.state, holding.spare, holding.boundary) if row not in (ZERO, NO_ROW)
            )
            source, target = s.cache.step_rows(holding)
            targets[target] += 1
            sources[source] += source != target
            if request.slot >= 0 and not holding.computed < request.computed:
                message = int(s.slots.source[request.slot]), int(s.slots.target[request.slot])
                if message != (source, target):
                    return f"request {request.number} has rows {source} and {target}, its slot has {message}"
    users.update(capsule.state for capsule in s.capsules if capsule.state not in (ZERO, NO_ROW))
    users.update(pin.row for pin in s.pins.list_pins() if pin.row != NO_ROW)
    for row, count in targets.items():
        if count > 1 or row == ZERO or sources[row]:
            return f"row {row} is written by {count} sequences and read by {sources[row]} others"
    for row, counted in enumerate(s.cache.rows.users):
        if users[row] != counted:
            return f"row {row} has {users[row]} owners, {counted} are counted"
    return None


def i11(s: SchedulerState) -> str | None:
    """Slot counts per tenant are correct, and no tenant exceeds its slot and page limits."""
    for tenant, row in enumerate(s.tenants):
        bound = sum(request.tenant == tenant for request in s.running())
        parked = sum(r.tenant == tenant and r.state is State.PARKED for r in s.requests())
        if (bound, parked, bound) != (s.bound[tenant], s.parked[tenant], int(s.slot_steps[tenant])):
            noted = f"{s.bound[tenant]} and {s.parked[tenant]} noted"
            return f"tenant {tenant} has {bound} slots and {parked} parked, {noted}"
        if row.slots_max is not None and bound > row.slots_max:
            return f"tenant {tenant} has {bound} slots of at most {row.slots_max}"
        for group, pool in enumerate(s.cache.pools):
            maximum = pool.find_quota(tenant).most
            if maximum is not None and pool.count_charge(tenant) > maximum:
                return (
                    f"tenant {tenant} has {pool.count_charge(tenant)} pages of group {group}, of at most {maximum}"
                )
    kinds = Counter((r.tenant, r.priority, r.effective) for r in s.running())
    if kinds != Counter({kind: len(members) for kind, members in s.kinds.items()}):
        return f"{dict(kinds)} run, {s.kinds.keys()} noted"
    return None


def i12(s: SchedulerState) -> str | None:
    """The positions of each sequence in a step are consecutive from its computed position."""
    plan = s.plan
    if not _is_in_flight(s):
        return None
    for index in range(plan.sequences):
        tokens = np.flatnonzero(plan.sequence[: plan.tokens] == index)
        slots, positions = plan.slot[tokens], plan.position[tokens]
        request = s.slots.requests[int(slots[0])] if len(slots) else None
        if request is None or (slots != slots[0]).any() or (np.diff(tokens) != 1).any():
            return f"sequence {index} of the step is not a run of tokens of one bound slot"
        if positions.tolist() != list(range(request.computed, request.computed + len(tokens))):
            return f"request {request.number} computes {positions.tolist()}, it is at {request.computed}"
        if s.vocab and not (plan.token_id[tokens].min() >= 0 and plan.token_id[tokens].max() < s.vocab):
            return f"request {request.number} computes {plan.token_id[tokens].tolist()}, of {s.vocab} token ids"
        known = s.slots.history[request.slot, positions]
        if (known != plan.token_id[tokens]).any():
            got = plan.token_id[tokens].tolist()
            return f"request {request.number} computes {got}, its tokens are {known.tolist()}"
    return None


def i13(s: SchedulerState) -> str | None:
    """A step respects its size limit, and contains a row for every decoding request that can run, except those
    that wait for their turn because of a class with a latency budget.
    """
    plan = s.plan
    if not _is_in_flight(s):
        return None
    if plan.tokens > s.limits.step_tokens or plan.rows - plan.drafts > s.limits.slots:
        return f"{plan.tokens} tokens and {plan.rows} rows in a step of {s.limits.step_tokens}, {s.limits.slots}"
    drawing = set(plan.row_slot[: plan.rows].tolist())
    if (plan.slot[plan.logit_row[: plan.rows]] != plan.row_slot[: plan.rows]).any():
        return "a row of logits belongs to another slot"
    decodes = plan.decode_set
    assert decodes is not None
    if plan.drafts and plan.prompts and any(decodes.classes[item] for _, item in s.gap_budgets):
        return f"{plan.drafts} drafts in a step with prompts and a latency budget"
    protected = min((item for _, item in s.gap_budgets if decodes.classes[item]), default=Priority.BATCH)
    for request in s.running():
        late = request in s.late or request in s.drawn_late
        drafts = int(np.count_nonzero(plan.row_slot[: plan.decode_rows] == request.slot)) - 1
        most = s.limits.drafts if request.drafts is None else request.drafts
        if drafts > most:
            return f"request {request.number} has {drafts} drafts, of at most {most}"
        if drafts > 0 and request.sampling.penalised:
            return f"request {request.number} has drafts and penalties, which depend on the tokens before"
        out = request.held or request.left_out or s.probation or late or request.priority > protected
        if request.state is State.DECODE and not out and request.slot not in drawing:
            return f"request {request.number} decodes, but is not in the step"
    return None


def i14(s: SchedulerState) -> str | None:
    """Generated tokens never shrink or change, and never exceed the requested number."""
    for request in s.requests():
        if request.delivered > request.generated or request.generated > request.limit:
            counts = f"{request.delivered} delivered, {request.generated} made"
            return f"request {request.number}: {counts}, limit {request.limit}"
        if request.slot >= 0:
            known = s.slots.history[request.slot, : len(request.tokens)]
            if len(request.tokens) > request.length or (known != request.tokens).any():
                return f"request {request.number}: tokens that were delivered have changed"
    return None


def i15(s: SchedulerState) -> str | None:
    """The sum of the tenants' charges equals the device's work."""
    for problem in s.ledger.find_problems() if s.ledger is not None else ():
        return problem
    return None


def i16(s: SchedulerState) -> str | None:
    """A tenant's service counter never decreases."""
    now = {tenant: s.service.to_tokens(tenant) for tenant in s.service.counters}
    seen, s.seen_service = s.seen_service, now
    for tenant, argument in seen.items():
        if now.get(tenant, 0.0) < argument:
            return f"tenant {tenant} had a service of {argument} tokens, and now {now.get(tenant, 0.0)}"
    return None


def i17(s: SchedulerState) -> str | None:
    """No queue contains a finished or running request."""
    for request in s.queues.requests():
        if request.state in TERMINAL or request.state not in QUEUED:
            return f"request {request.number} is {request.state.value}, but is in a queue"
    waiting = Counter(request.tenant for request in s.queues.requests())
    for tenant in range(len(s.tenants)):
        if waiting[tenant] != s.queues.waiting(tenant):
            return f"{waiting[tenant]} of tenant {tenant} wait, {s.queues.waiting(tenant)} are counted"
    return None


def i18(s: SchedulerState) -> str | None:
    """Each token of a step is in one launch, that of its role, and a sequence's cached pages have the keys of its
    tokens in their orderings."""
    plan = s.plan
    if plan.launches and _is_in_flight(s):
        counts = np.bincount(np.concatenate([launch.tokens for launch in plan.launches]), minlength=plan.tokens)
        if (counts != 1).any():
            return f"token {int(np.argmax(counts != 1))} of the step is in {counts[counts != 1][0]} launches"
        for launch in plan.launches:
            for token in launch.tokens.tolist():
                request = s.slots.requests[int(plan.slot[token])]
                assert request is not None
                position = int(plan.position[token])
                role = "prompt" if position < (request.decoded_from or 0) else "decode"
                if role != launch.role:
                    return f"request {request.number}: position {position} is computed as a {launch.role} token"
    size = s.cache.page_tokens
    for request in s.requests():
        holding = request.holding
        if holding is None or holding.last is None:
            continue
        if holding.decoded_from != request.decoded_from:
            return (
                f"request {request.number} decodes from {request.decoded_from}, its pages {holding.decoded_from}"
            )
        if holding.decoded_from is None:
            continue
        first = (holding.registered - 1) * size
        known = request.tokens if request.slot < 0 else s.slots.history[request.slot]
        keys = make_token_keys(known[first : first + size], first, request.decoded_from)
        if holding.last.tokens != np.ascontiguousarray(keys, TOKEN).tobytes():
            return f"request {request.number}: the page at {first} is cached with other tokens or orderings"
    return None


INVARIANTS: tuple[Callable[[SchedulerState], str | None], ...] = (
    i01, i02, i03, i04, i05, i06, i07, i08, i09, i10, i11, i12, i13, i14, i15, i16, i17, i18,
)  # fmt: skip


def find_violations(s: SchedulerState) -> list[str]:
    """Return all current violations by invariant number."""
    return [
        f"{invariant.__name__.upper()}: {result}"
        for invariant in INVARIANTS
        if (result := invariant(s)) is not None
    ]


def _is_in_flight(s: SchedulerState) -> bool:
    """Return whether the plan belongs to a step that has not been committed."""
    return s.plan.tokens > 0 and s.plan.number > s.counts.steps


def _list_tables(s: SchedulerState) -> Iterator[tuple[int, list[list[int]]]]:
    """All objects that refer to pages: requests, capsules, sessions."""
    for request in s.requests():
        if request.holding is not None:
            yield request.tenant, request.holding.tables
    for capsule in s.capsules:
        yield capsule.tenant, capsule.tables
    for pin in s.pins.list_pins():
        yield pin.tenant, pin.tables
