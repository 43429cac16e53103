"""Plan a step: each decoding request's last token with its drafts, then prompt chunks up to the step's limits.

A step takes at most `step_tokens`. While a request whose class has a latency budget decodes, or waits for its
first token, the expected time of the step is limited as well: prompts get fewer tokens, and if that is not
enough, the decodes of lower classes take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.sched import preempt
from zinc_rt.sched.drafting import Drafts, draft_tokens
from zinc_rt.sched.forking import fork_choices
from zinc_rt.sched.late import find_ready_late_rows, settle_masks
from zinc_rt.sched.plan import ORDINALS, StepPiece, StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.slots import DecodeSet
from zinc_rt.sched.state import GapBudget, SchedulerState
from zinc_rt.sched.tenant import BANDS

LEFT_OUT = 8  # steps without a page until a decode is parked
ROUNDED_PAGES = 4  # of a prompt chunk: from here on it ends at a page boundary
AGED_PART = 8  # one in so many prompt tokens of a step goes to an aged prompt of a lower class


def plan_step(s: SchedulerState) -> StepPlan:
    """Return the step's plan; `tokens` is 0 if there is nothing to compute."""
    plan = s.plan
    plan.clear(s.counts.steps + 1)
    s.drawn_late.clear()
    if s.full:
        _grow(s)
    decodes = s.slots.list_decoding()
    if s.probation:
        decodes = _select_retried(s, decodes)
    prompts = _list_prompts(s) if s.prefilling else []
    gap = _find_gap_budget(s, decodes)
    if gap is not None:
        decodes = _limit_to_budget(s, decodes, gap, s.limits.cost.least_prompt if prompts else 0)
    drafts = draft_tokens(s, decodes, prompts, gap)
    _plan_decodes(s, plan, decodes, drafts)
    if prompts:
        _plan_prompts(s, plan, prompts, gap)
    if prompts and not plan.tokens and preempt.relieve(s, prompts[0]):
        return plan_step(s)  # nothing went on for want of pages
    if plan.tokens:
        _hand_over(s, plan)
        settle_masks(s, plan)
        if s.limits.prefill_ordering:
            _split_by_role(s, plan)
    return plan


def _split_by_role(s: SchedulerState, plan: StepPlan) -> None:
    """Divide a step into launches: first its tokens in the ordering of decodes, then those in that of prompts. The
    role of a token is a fact of its position in its sequence, so a recomputed token has the one that it had; all
    tokens of a sequence in a step have one role (see `find_chunk_end`)."""
    slots = s.slots
    prompt = plan.position[: plan.tokens] < slots.decoded_from[plan.slot[: plan.tokens]]
    if (count := int(np.count_nonzero(prompt))) in (0, plan.tokens):
        plan.launches.append(plan.make_launch("prompt" if count else "decode"))
        return
    of_sequence = np.zeros(plan.sequences, bool)
    of_sequence[plan.sequence[: plan.tokens][prompt]] = True
    plan.launches.append(plan.take_sequences(~of_sequence, "decode", slots))
    plan.launches.append(plan.take_sequences(of_sequence, "prompt", slots))


def _hand_over(s: SchedulerState, plan: StepPlan) -> None:
    """Add the updates for the device before the step: new bindings, table entries, copies."""
    slots = s.slots
    plan.table_changes, slots.table_changes = slots.table_changes, plan.table_changes
    for changes in slots.table_changes:
        changes.clear()
    plan.bound, slots.bound = slots.bound, plan.bound
    slots.bound.clear()
    plan.copies, s.copies = s.copies, plan.copies
    s.copies.clear()
    plan.counts_of.clear()
    plan.bias_of.clear()
    for slot in plan.bound:
        request = slots.requests[slot]
        if request is None:
            continue
        if request.sampling.penalised:
            plan.counts_of[slot] = slots.history[slot, : request.length].copy()
        if request.sampling.logit_bias:
            plan.bias_of[slot] = dict(request.sampling.logit_bias)


# --- decodes


def _grow(s: SchedulerState) -> None:
    """Allocate a page for each request that has filled its last one."""
    ready = [request for slot in s.full if (request := s.slots.requests[slot]) is not None and not request.held]
    if s.cache.grow_each([request.holding for request in ready if request.holding is not None]):
        _record_growth(s, ready)
    else:
        _grow_one_by_one(s)


def _record_growth(s: SchedulerState, requests: Sequence[Request]) -> None:
    s.slots.send_pages(requests)
    for request in requests:
        del s.full[request.slot]
        if request.left_out:
            request.left_out = 0
            s.slots.leave_out(request, False)


def _grow_one_by_one(s: SchedulerState) -> None:
    """Grow requests one after another when pages are scarce. A request without a page is excluded and finally
    preempted.
    """
    for slot in list(s.full):
        request = s.slots.requests[slot]
        if slot not in s.full or request is None or request.held:
            continue  # it was evicted for another, or nobody reads it
        assert request.holding is not None
        grown = s.cache.grow(request.holding)
        while not grown and preempt.relieve(s, request):
            grown = s.cache.grow(request.holding)
        if grown:
            _record_growth(s, [request])
            continue
        s.slots.leave_out(request, True)
        request.left_out += 1
        if request.left_out > LEFT_OUT or not _has_other_requests(s):
            s.park(request)


def _has_other_requests(s: SchedulerState) -> bool:
    """Return whether a step without the excluded requests would compute anything."""
    return (
        bool(find_ready_late_rows(s))
        or bool(s.slots.decoding.any())
        or any(not request.held for request in s.prefilling)
    )


def _select_retried(s: SchedulerState, decodes: DecodeSet) -> DecodeSet:
    """Only who is on probation."""
    request = s.probation[0]
    return s.slots.make_set(decodes.slots[decodes.slots == request.slot])


def _find_gap_budget(s: SchedulerState, decodes: DecodeSet) -> GapBudget | None:
    """Return the smallest latency budget of a decoding class. It protects the most urgent of them."""
    budgets = [gap_budget for gap_budget in s.gap_budgets if decodes.classes[gap_budget.priority]]
    if len(budgets) < 2:
        return budgets[0] if budgets else None
    return GapBudget(min(budgets).ns, min(budget.priority for budget in budgets))


def _limit_to_budget(s: SchedulerState, decodes: DecodeSet, budget: GapBudget, prompt: int) -> DecodeSet:
    """Return the decodes that fit the budget together with `prompt` prompt tokens. Requests of classes below the
    protected one take turns, in equal shares; if none fits, one runs in every step.
    """
    slots, count, total = decodes.slots, len(decodes.slots), decodes.context
    alone_ns = s.cost.nanoseconds(0, count, total)
    if alone_ns > budget.ns:
        s.counts.infeasible_steps += 1
        s.counts.infeasible_ns = max(s.counts.infeasible_ns, alone_ns)
    if (s.cost.nanoseconds(prompt, count, total) if prompt else alone_ns) <= budget.ns:
        return decodes
    lower = s.slots.classes[decodes.index] > budget.priority
    others = slots[lower]
    if not len(others):
        return decodes
    read = s.slots.count_context(others) + len(others)
    item = read // len(others)
    room = s.cost.count_further_decodes(budget.ns, prompt, count - len(others), total - read, len(others), item)
    turns = max(1, room)
    if turns >= len(others):
        return decodes
    first = int(np.searchsorted(others, s.last_turn, side="right"))
    chosen = others[(first + ORDINALS[:turns]) % len(others)]
    s.last_turn = int(chosen[-1])
    return s.slots.make_set(np.sort(np.concatenate([slots[~lower], chosen])))


def _plan_decodes(s: SchedulerState, plan: StepPlan, decodes: DecodeSet, drafts: Drafts | None) -> None:
    """Add the last token of each decode and its drafts, with a row for each, after the tokens that its recurrent
    state does not include. All are in the history."""
    slots, index, n = s.slots, decodes.index, len(decodes.slots)
    position, behind = slots.position[index], slots.behind[index]
    single = drafts is None and not (s.cache.rows is not None and behind.any())
    if single:
        tokens, of, rows, token_id = n, ORDINALS[:n], ORDINALS[:n], slots.last_token[index]
    else:
        of = np.repeat(ORDINALS[:n], behind + 1 if drafts is None else behind + 1 + drafts.counts)
        tokens, offset = len(of), ORDINALS[: len(of)] - np.searchsorted(of, of)
        position = position[of] + offset
        token_id = slots.flat[decodes.places[of] + position]
        rows = np.flatnonzero(offset >= behind[of]).astype(np.int32)
    if drafts is not None:
        plan.mask_of.update(drafts.masks)
    plan.decode_set, count = decodes, len(rows)
    if plan.laid_out is not decodes or not single:  # else all of this is there from the step before
        plan.laid_out = decodes if single else None
        plan.slot[:tokens], plan.sequence[:tokens] = decodes.slots[of], of
        plan.logit_row[:count], plan.row_slot[:count] = rows, decodes.slots[of[rows]]
    plan.decodes, plan.drafts, plan.recomputed, plan.sequences = n, count - n, tokens - count, n
    plan.tokens, plan.rows = tokens, count
    if not n:
        return
    plan.position[:tokens], plan.token_id[:tokens] = position, token_id
    np.add(position if single else position[rows], 1, out=plan.row_position[:count])
    if s.cache.rows is not None:
        plan.state_source[:n] = slots.source[index]
        plan.state_target[:n] = slots.target[index]


# --- prompts


def _list_prompts(s: SchedulerState) -> list[Request]:
    """Return the prompts that can continue, in the order in which they are computed."""
    prompts = [request for request in s.prefilling if not request.held and request not in s.late]
    if s.probation:
        prompts = [request for request in prompts if request is s.probation[0]]
    if len(prompts) > 1:
        service = s.service.counters
        prompts.sort(key=lambda r: (r.effective, service[r.tenant], r.number, r.choice))
    return prompts


def _plan_prompts(s: SchedulerState, plan: StepPlan, prompts: list[Request], gap: GapBudget | None) -> None:
    first = prompts[0]
    left = s.limits.step_tokens - plan.tokens
    if s.limits.whole_prompts:  # nothing decodes, and a part of a prompt is of no use to a latency budget
        for request in prompts:
            left -= _plan_prompt(s, plan, request, left)
        return
    for budget_ns in (gap.ns if gap is not None else None, s.limits.submission_ns):
        if budget_ns is not None:
            left = _count_affordable_tokens(s, plan, budget_ns, first, left)
    waiting = s.limits.classes[first.effective].first_token_ns
    if len(prompts) > 1:
        aged = _find_oldest_aged_prompt(s, prompts)
        if aged is not None and left >= s.limits.cost.least_prompt:
            prompts.remove(aged)
            left -= _plan_prompt(s, plan, aged, max(1, left // AGED_PART))
    for request in prompts:
        if waiting is not None and request.effective > first.effective:
            left = _count_affordable_tokens(s, plan, waiting - (s.now_ns - first.arrived_ns), request, left)
            waiting = None
        if left <= 0:
            return
        left -= _plan_prompt(s, plan, request, left)


def _count_affordable_tokens(
    s: SchedulerState, plan: StepPlan, budget_ns: int, prompt: Request, maximum: int
) -> int:
    """Return how many further prompt tokens, at least `StepCost.least_prompt` and at most `maximum`, fit a
    budget."""
    if maximum <= s.limits.cost.least_prompt:
        return maximum
    assert prompt.holding is not None
    context, tokens = plan.context + prompt.holding.computed, plan.batched_tokens
    room = s.cost.prompt_tokens(budget_ns, plan.decodes, context, tokens + maximum) - tokens
    if room >= maximum:
        return maximum
    s.counts.limited_steps += 1
    return max(s.limits.cost.least_prompt, room)


def _find_oldest_aged_prompt(s: SchedulerState, prompts: list[Request]) -> Request | None:
    """Return the prompt of a lower class than the first that has made no progress for the longest time, if that is
    at least all bands of its class.
    """
    behind = [
        request
        for request in prompts
        if request.effective > prompts[0].effective
        and s.now_ns - request.ran_ns >= BANDS * s.limits.classes[request.priority].age_ns
    ]
    return min(behind, key=lambda request: (request.ran_ns, request.number), default=None)


def _plan_prompt(s: SchedulerState, plan: StepPlan, request: Request, left: int) -> int:
    """Add the next piece of a prompt, at most `left` tokens. How many."""
    holding, slots = request.holding, s.slots
    assert holding is not None
    first = holding.computed
    if request.siblings and first >= request.prompt - 1:
        fork_choices(s, request)  # all but its last token was cached
    last = find_chunk_end(s, request, first, left)
    if last <= first or not s.cache.cover(holding, last):  # rare: its pages are promised, but for a window's
        return 0
    slots.send_tables(request)
    slot, draws = request.slot, last == request.length
    index = plan.add_sequence(slot, slots.history[slot, first:last], first, s.cache.step_rows(holding))
    if draws:
        plan.add_row(index + last - first - 1, slot, last)
    plan.prompts.append(StepPiece(request, first, last, draws))
    return last - first


def find_chunk_end(s: SchedulerState, request: Request, first: int, left: int) -> int:
    """Return the end of the next prompt chunk: the step's limit, and at most the next checkpoint, fork position
    or change of the ordering. Unless it is the prompt's end, it is rounded down to a page boundary if the chunk
    is long enough that little is lost.
    """
    page, end = s.cache.page_tokens, request.length
    if s.limits.whole_prompts:
        return end if end - first <= left else first
    if request.decoded_from is not None and first < request.decoded_from:
        end = min(end, request.decoded_from)
    reach = min(end, first + min(left, s.cache.chunk_tokens))
    if request.siblings and first < request.prompt - 1:
        reach = min(reach, request.prompt - 1)
    for stop in list_checkpoints(s, request, request.length):
        if first < stop < reach:
            reach = stop
    if reach >= end or (request.siblings and reach == request.prompt - 1):
        return reach
    whole = reach // page * page
    return whole if reach - first >= ROUNDED_PAGES * page else reach


def list_checkpoints(s: SchedulerState, request: Request, end: int) -> tuple[int, ...]:
    """Return where the recurrent state of a prompt is saved: after its last full page, after a page prefix
    shared with another prompt, and at regular intervals of a long prompt."""
    if s.cache.rows is None:
        return ()
    holding = request.holding
    assert holding is not None
    page, every = s.cache.page_tokens, s.limits.checkpoint_tokens
    next_one = (holding.computed // every + 1) * every // page * page
    return end // page * page, holding.junction, next_one
