"""Commit a step: positions, tokens, finished requests, full pages, and charges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from zinc_rt.sched.forking import begin_choices, fork_choices
from zinc_rt.sched.late import split_late_rows
from zinc_rt.sched.plan import NO_CANDIDATE, ORDINALS, Batch, Drawn, RowLogprobs, StepPiece, StepPlan
from zinc_rt.sched.planning import list_checkpoints
from zinc_rt.sched.request import GENERATED, LAST_TOKEN, POSITION, TERMINAL, Request, State
from zinc_rt.sched.state import SchedulerState
from zinc_rt.sched.usage.ledger import DrawnTokens, RunnerCounts, StepKind


def commit_step(s: SchedulerState, plan: StepPlan, drawn: Drawn, device: RunnerCounts) -> Batch:
    """Commit the sampled tokens of a step; late rows are set aside. `device`: the runner's counts of its work.

    A row of a draft is committed after the row before it, if the draft is the token that this row sampled.
    """
    s.counts.steps += 1
    s.counts.computed += plan.tokens
    _begin_accounts(s)
    if plan.tokens and plan.decodes:
        _charge_decodes(s, plan)
    first, first_drawn, further = _split_drafts(s, plan, drawn)
    if plan.drafts and s.cache.rows is not None:
        _set_states_ahead(s, plan, True)
    if plan.late:
        first, first_drawn, late = split_late_rows(s, first, first_drawn)
        for row in late:
            if row.piece is not None:
                _charge_prompt(s, row.piece)
    advanced: dict[Request, None] = {}
    batches = [_commit_rows(s, first, first_drawn, advanced)]
    while len(further) and len(rows := further[_follow_committed(s, plan, further)]):
        accepted = plan.take_rows(rows, s.slots)
        accepted.prompts = []
        batches.append(_commit_rows(s, accepted, drawn.take(rows), advanced))
        _charge_accepted(s, accepted)
        further = np.setdiff1d(further, rows)
    if plan.drafts and s.cache.rows is not None:
        _set_states_ahead(s, plan, False)
        _keep_states_before(s, plan, further)
    _update_decodes(s, first)
    for request in advanced:
        if request.state not in TERMINAL and request.mask is not None:
            s.fills.refill(request.mask)
    if plan.drafts:
        _record_acceptance(s, plan, further)
    if s.ledger is not None and s.generated is not None:
        s.ledger.add(s.generated, device)
    ended, s.ended = tuple(s.ended), []
    return _join_batches(s.counts.steps, batches, ended)


def _commit_rows(s: SchedulerState, plan: StepPlan, drawn: Drawn, advanced: dict[Request, None]) -> Batch:
    """Commit at most one row of each slot. `advanced` receives the requests whose masks accepted a token."""
    tokens = drawn.tokens[: plan.rows]
    drew = [piece.request for piece in plan.prompts if piece.draws]  # behind the decodes, a row each
    bad = [] if _has_only_finite(drawn) else np.flatnonzero(drawn.nonfinite[: plan.rows] >= 0).tolist()
    skipped = [] if drawn.skipped is None else np.flatnonzero(drawn.skipped[: plan.rows]).tolist()
    _note_latencies(s, plan, sorted(bad + skipped))
    if plan.decodes:
        _commit_decodes(s, plan, tokens)
    index = plan.decodes
    for piece in plan.prompts:
        wrong = _find_nonfinite_reason(drawn, index) if piece.draws and index in bad else ""
        if piece.draws and index in skipped:
            _skip_prompt(s, piece)
        else:
            token = int(tokens[index]) if piece.draws else -1
            _commit_prompt(s, piece, token, wrong, charged=not plan.tokens)
        index += piece.draws
    for index in bad:
        if index < plan.decodes:
            _fail(s, _find_decoding_request(s, plan, index), _find_nonfinite_reason(drawn, index))
    for index in skipped:
        if index < plan.decodes:
            _skip_decode(s, _find_decoding_request(s, plan, index))
    for index in s.ends.rows(tokens):
        request = _find_decoding_request(s, plan, index) if index < plan.decodes else drew[index - plan.decodes]
        if request is not None and request.state not in TERMINAL and s.ends.is_end(request, int(tokens[index])):
            s.end(request, State.FINISHED, "stop")
    if s.masked:
        _advance_masks(s, plan, tokens, drew, skipped, advanced)
    return _make_batch(s, plan, drawn, drew, sorted(bad + skipped))


# --- drafts


def _split_drafts(s: SchedulerState, plan: StepPlan, drawn: Drawn) -> tuple[StepPlan, Drawn, np.ndarray]:
    """Return the plan with the first row of each slot, its tokens, and the other rows, those of drafts."""
    if not plan.drafts:
        return plan, drawn, ORDINALS[:0]
    rows = ORDINALS[: plan.rows]
    after_draft = np.diff(plan.row_slot[: plan.rows], prepend=-1) == 0
    return plan.take_rows(rows[~after_draft], s.slots), drawn.take(rows[~after_draft]), rows[after_draft]


def _follow_committed(s: SchedulerState, plan: StepPlan, rows: np.ndarray) -> np.ndarray:
    """Return which rows come next, bool: their input is the last token of a request that decodes."""
    slots, inputs = plan.row_slot[rows], plan.logit_row[rows]
    follows: np.ndarray = s.slots.decoding[slots] & (s.slots.position[slots] == plan.position[inputs])
    return follows & (s.slots.last_token[slots] == plan.token_id[inputs])


def _charge_accepted(s: SchedulerState, plan: StepPlan) -> None:
    """Count rows after accepted drafts, which `_charge_decodes` counted as rejected."""
    decodes = plan.decode_set
    assert decodes is not None
    if s.generated is not None:
        s.generated.counts[StepKind.DRAFT_REJECTED] -= decodes.by_tenant
    _charge_decode_rates(s, decodes.charges)


def _record_acceptance(s: SchedulerState, plan: StepPlan, rejected: np.ndarray) -> None:
    """Record for each request with drafts how many were accepted. `rejected`: the rows of the others."""
    assert s.speculation is not None
    s.speculation.drafted += plan.drafts
    s.speculation.accepted += plan.drafts - len(rejected)
    slots, counts = np.unique(plan.row_slot[: plan.decode_rows], return_counts=True)
    wrong = dict(zip(*np.unique(plan.row_slot[rejected], return_counts=True), strict=True))
    for slot, count in zip(slots.tolist(), (counts - 1).tolist(), strict=True):
        request = s.slots.requests[slot]
        if count and request is not None and request.state is State.DECODE:
            accepted = count - int(wrong.get(slot, 0))
            length = s.speculation.length(request.number, request.choice)
            length.record(request.length, count, accepted)


def _set_states_ahead(s: SchedulerState, plan: StepPlan, ahead: bool) -> None:
    """Set for each decode with drafts whether the row that it wrote may include tokens that are not its own: if it
    ends, the row is no checkpoint."""
    slots, rows = np.unique(plan.row_slot[: plan.decode_rows], return_counts=True)
    for slot in slots[rows > 1].tolist():
        request = s.slots.requests[slot]
        if request is not None and request.holding is not None:
            request.holding.spoilt = ahead


def _keep_states_before(s: SchedulerState, plan: StepPlan, rejected: np.ndarray) -> None:
    """Keep the recurrent states before the step of requests with rejected drafts, whose next step computes its
    accepted tokens again. `rejected`: the rows of these drafts."""
    for slot in np.unique(plan.row_slot[rejected]).tolist():
        request = s.slots.requests[slot]
        if request is not None and request.state is State.DECODE:
            request.row[POSITION] = plan.position[int(np.argmax(plan.slot[: plan.tokens] == slot))]
            s.slots.behind[slot] = request.length - 1 - request.computed


def _join_batches(step: int, batches: list[Batch], ended: tuple[tuple[int, int, str], ...]) -> Batch:
    """Return the tokens of all batches in order."""
    if len(batches) == 1:
        return replace(batches[0], ended=ended)
    requests, choices, tokens = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("requests", "choice", "tokens")
    )
    parts = [batch.logprobs for batch in batches if batch.logprobs is not None]
    return Batch(step, requests, choices, tokens, RowLogprobs.join(parts) if parts else None, ended)


# --- accounts


def _begin_accounts(s: SchedulerState) -> None:
    """Count the slots and pages that each tenant used during the step."""
    result = s.generated
    if result is None:
        return
    counts, pages, result.drawn = result.counts, result.pages, None
    counts[:] = 0
    counts[StepKind.SLOT_STEPS] = s.slot_steps
    tenants = len(s.tenants)
    for group, pool in enumerate(s.cache.pools):
        row = pages[group]
        row[:tenants] = pool.paid
        for isolation in range(len(row) - 2 - tenants):
            row[tenants + isolation] = pool.shared_by[isolation]
        row[-2], row[-1] = pool.pool.idle, pool.pool.free


def _note_latencies(s: SchedulerState, plan: StepPlan, bad: list[int]) -> None:
    """Pass the time of each sampled token to the ledger, measured from the request's arrival or its last token."""
    if s.generated is None or plan.rows == len(bad) or s.limits.embeds:
        return
    slots, decodes = s.slots, plan.decode_set
    assert decodes is not None
    rows: np.ndarray | slice = plan.row_slot[: plan.rows]
    if bad:
        rows = np.delete(plan.row_slot[: plan.rows], bad)
    elif plan.rows == plan.decodes:
        rows = decodes.index
    now_ns = s.clock_ns()
    drawn = DrawnTokens(slots.tenants[rows].copy(), slots.drew[rows].copy(), now_ns - slots.since_ns[rows])
    before = s.generated.drawn
    s.generated.drawn = (
        drawn if before is None else DrawnTokens(*map(np.concatenate, zip(before, drawn, strict=True)))
    )
    slots.since_ns[rows], slots.drew[rows] = now_ns, True


def _has_only_finite(drawn: Drawn) -> bool:
    return not len(drawn.nonfinite) or int(np.maximum.reduce(drawn.nonfinite)) < 0


def _find_nonfinite_reason(drawn: Drawn, row: int) -> str:
    return "sampler_no_candidate" if drawn.nonfinite[row] == NO_CANDIDATE else "logits_not_finite"


def _find_decoding_request(s: SchedulerState, plan: StepPlan, row: int) -> Request | None:
    return s.slots.requests[int(plan.row_slot[row])]


# --- decodes


def _commit_decodes(s: SchedulerState, plan: StepPlan, tokens: np.ndarray) -> None:
    """Commit one token per decode, with one array operation per column."""
    slots, decodes, n = s.slots, plan.decode_set, plan.decodes
    assert decodes is not None
    index, behind, tokens = decodes.index, plan.row_position[:n], tokens[:n]
    slots.flat[decodes.places + behind] = tokens
    slots.position[index] = behind
    slots.last_token[index] = tokens
    slots.generated[index] += 1
    slots.behind[index] = 0
    slots.read_more(n)
    if s.generated is not None:
        s.generated.counts[StepKind.TOKENS_GENERATED] += decodes.by_tenant


def _charge_decodes(s: SchedulerState, plan: StepPlan) -> None:
    """Charge the inputs of a step's decodes, including those whose token is sampled late, recomputed tokens, and
    drafts, whose rows are counted as rejected until they are accepted."""
    decodes = plan.decode_set
    assert decodes is not None
    s.service.charge_each(decodes.charges)
    _charge_decode_rates(s, decodes.charges)
    if s.generated is not None:
        s.generated.counts[StepKind.DECODE_INPUTS] += decodes.by_tenant
    if plan.drafts:
        of_rows = s.slots.tenants[plan.row_slot[: plan.decode_rows]]
        drafts = np.bincount(of_rows, minlength=len(decodes.by_tenant)) - decodes.by_tenant
        s.service.charge_each(enumerate(drafts.tolist()))
        if s.generated is not None:
            s.generated.counts[StepKind.DRAFT_INPUTS] += drafts
            s.generated.counts[StepKind.DRAFT_REJECTED] += drafts
    if plan.recomputed:
        sizes = np.bincount(s.slots.tenants[plan.slot[: plan.decode_tokens]], minlength=len(decodes.by_tenant))
        again = sizes - np.bincount(s.slots.tenants[plan.row_slot[: plan.decode_rows]], minlength=len(sizes))
        s.service.charge_each(enumerate(again.tolist()))
        if s.generated is not None:
            s.generated.counts[StepKind.TOKENS_RECOMPUTED] += again


def _charge_decode_rates(s: SchedulerState, charges: Iterable[tuple[int, int]]) -> None:
    """Charge the tenants' decode rates: (tenant, tokens)."""
    for tenant, count in charges:
        bucket = s.buckets[tenant][1]
        if bucket is not None:
            bucket.charge(count, s.now_ns)


def _update_decodes(s: SchedulerState, plan: StepPlan) -> None:
    """End requests at their limit, cache full pages and request another, and update rows of moved states."""
    slots, n = s.slots, plan.decodes
    for first in (piece.request for piece in plan.prompts if piece.draws):
        if first.slot >= 0 and first.computed >= slots.stop[first.slot]:
            _end_or_grow(s, first, at_limit=first.generated >= first.limit)
    if n:
        assert plan.decode_set is not None
        index = plan.decode_set.index
        position = slots.position[index]  # as committed: a skipped row has not moved
        (at_stop,) = (position >= slots.stop[index]).nonzero()
        if len(at_stop):
            at_limit = position[at_stop] >= slots.most_placed[index][at_stop]
            for slot, limited in zip(plan.row_slot[at_stop].tolist(), at_limit.tolist(), strict=True):
                stopped = slots.requests[slot]
                if stopped is not None:
                    _end_or_grow(s, stopped, at_limit=limited)
    for slot in list(s.moving):
        request = slots.requests[slot]
        if request is not None and request.holding is not None and request.computed > request.holding.computed:
            s.cache.record_computed(request.holding, slots.history[slot], request.computed, now_ns=s.now_ns)
            s.sync_rows(request)


def _end_or_grow(s: SchedulerState, request: Request, *, at_limit: bool) -> None:
    """End a request at its limit; otherwise its pages are full, and it needs another. If windows release pages or
    a state is saved, full pages are cached now, otherwise when it leaves its slot.
    """
    holding = request.holding
    assert holding is not None
    if at_limit:
        s.end(request, State.FINISHED, "length")
        return
    if s.cache.turns_pages:
        computed = request.computed
        if computed > holding.computed:
            s.cache.record_computed(
                holding, s.slots.history[request.slot], computed, rolling=s.rolling, now_ns=s.now_ns
            )
            s.sync_rows(request)
    s.full[request.slot] = None
    if request.lifted and request.generated - request.bound_made >= s.limits.slice_tokens:
        s.reset_promotion(request)


# --- prompts


def _commit_prompt(s: SchedulerState, piece: StepPiece, token: int, wrong: str, *, charged: bool) -> None:
    """`charged`: the row was late, and its inputs were charged in the step that computed them."""
    request, last = piece.request, piece.last
    holding, slot = request.holding, request.slot
    assert holding is not None
    if not charged:
        _charge_prompt(s, piece)
    if piece.draws:
        _charge_first_token(s, request)
    if wrong:
        _fail(s, request, wrong)
        return
    row = request.row
    row[POSITION] = last
    keep = last in list_checkpoints(s, request, request.length)
    if piece.draws:
        s.slots.history[slot, last] = row[LAST_TOKEN] = token
        row[GENERATED] += 1
    s.cache.record_computed(holding, s.slots.history[slot], last, keep=keep, now_ns=s.now_ns)
    if piece.draws:
        request.move(State.DECODE)
        s.prefilling.remove(request)
        s.slots.set_state(request, State.DECODE)
        s.slots.set_room(request)
        if request.siblings:
            begin_choices(s, request)
    elif request.siblings and last >= request.prompt - 1:
        fork_choices(s, request)
    s.sync_rows(request)


def _charge_prompt(s: SchedulerState, piece: StepPiece) -> None:
    """Charge the tokens of a piece of a prompt, and record that they were computed. Every token is either a prompt
    token computed for the first time, a recomputed token, or one that was sampled before.
    """
    request, first, last = piece.request, piece.first, piece.last
    tenant = request.tenant
    second = max(0, min(last, request.reached) - first)
    fresh_prompt = max(0, min(last, request.prompt) - max(first, request.reached))
    if s.generated is not None:
        counts = s.generated.counts[:, tenant]
        counts[StepKind.PROMPT_TOKENS_COMPUTED] += fresh_prompt
        counts[StepKind.TOKENS_RECOMPUTED] += second
        counts[StepKind.DECODE_INPUTS] += last - first - second - fresh_prompt
    s.service.charge(tenant, last - first)
    prefill, _ = s.buckets[tenant]
    if prefill is not None and fresh_prompt:
        prefill.charge(fresh_prompt, s.now_ns)
    request.ran_ns, request.reached = s.now_ns, max(request.reached, last)


def _charge_first_token(s: SchedulerState, request: Request) -> None:
    if s.limits.embeds:
        if s.generated is not None:
            s.generated.counts[StepKind.PROMPT_ROWS, request.tenant] += 1
        return
    if s.generated is not None:
        s.generated.counts[StepKind.TOKENS_GENERATED, request.tenant] += 1
    _, decode = s.buckets[request.tenant]
    if decode is not None:
        decode.charge(1, s.now_ns)


# --- what does not go on


def _advance_masks(
    s: SchedulerState,
    plan: StepPlan,
    tokens: np.ndarray,
    drawn_rows: list[Request],
    skipped: list[int],
    advanced: dict[Request, None],
) -> None:
    """Pass the sampled tokens to the masks; complete requests end, and requests that cannot continue fail. The
    others are added to `advanced`: their masks are filled when no further token of the step follows."""
    for row, slot in enumerate(plan.row_slot[: plan.rows].tolist()):
        if slot not in s.masked or row in skipped:
            continue
        request = _find_decoding_request(s, plan, row) if row < plan.decodes else drawn_rows[row - plan.decodes]
        if request is None or request.state in TERMINAL or request.mask is None:
            continue
        request.mask.accept(int(tokens[row]))
        if request.mask.failure:
            s.end(request, State.FAILED, request.mask.failure)
        elif request.mask.complete:
            s.end(request, State.FINISHED, "stop")
        else:
            advanced[request] = None


def _fail(s: SchedulerState, request: Request | None, reason: str) -> None:
    """Nothing could be sampled for it, so this step is not counted for it and nothing of it is cached."""
    if request is None:
        return
    if s.generated is not None:
        counted = StepKind.PROMPT_ROWS if s.limits.embeds else StepKind.TOKENS_GENERATED
        s.generated.counts[counted, request.tenant] -= 1
        s.generated.counts[StepKind.ROWS_DISCARDED, request.tenant] += 1
    if request.state is State.DECODE:
        request.row[POSITION] -= 1
        request.row[GENERATED] -= 1
    assert request.holding is not None
    request.holding.spoilt = True
    s.end(request, State.FAILED, reason)


def _skip_decode(s: SchedulerState, request: Request | None) -> None:
    """Undo a decode whose token was not delivered. Its last input is recomputed when it resumes."""
    assert request is not None
    if s.generated is not None:
        s.generated.counts[StepKind.TOKENS_GENERATED, request.tenant] -= 1
    row = request.row
    row[POSITION] -= 1
    row[GENERATED] -= 1
    row[LAST_TOKEN] = s.slots.history[request.slot, row[POSITION]]
    s.slots.read_more(-1)
    _skip(s, request)


def _skip_prompt(s: SchedulerState, piece: StepPiece) -> None:
    """Commit the end of a prompt whose token was not delivered, except the last token."""
    request, last = piece.request, piece.last
    holding = request.holding
    assert holding is not None
    _charge_prompt(s, piece)
    if s.cache.rows is None and last - 1 > holding.computed:
        request.row[POSITION] = last - 1
        s.cache.record_computed(holding, s.slots.history[request.slot], last - 1, now_ns=s.now_ns)
    _skip(s, request)


def _skip(s: SchedulerState, request: Request) -> None:
    """A recurrent state has passed the last input, so such a request is recomputed from its tokens."""
    if s.generated is not None:
        s.generated.counts[StepKind.ROWS_DISCARDED, request.tenant] += 1
    if s.cache.rows is not None:
        assert request.holding is not None
        request.holding.spoilt = True
        s.evict(request)


def _make_batch(
    s: SchedulerState, plan: StepPlan, drawn: Drawn, drawn_rows: list[Request], bad: list[int]
) -> Batch:
    """Return the step's output without the rows `bad`, in separate arrays."""
    decodes = plan.decode_set
    assert decodes is not None
    numbers, choices, tokens = decodes.numbers, decodes.choices, drawn.tokens[: plan.rows].copy()
    logprobs = drawn.logprobs
    if drawn_rows:
        drawn_slots = plan.row_slot[: plan.rows]  # a slot that has become free keeps its numbers until it is bound
        numbers, choices = s.slots.numbers[drawn_slots], s.slots.choices[drawn_slots]
    if bad:
        kept = np.setdiff1d(np.arange(plan.rows), bad)
        numbers, choices, tokens = numbers[kept], choices[kept], tokens[kept]
        logprobs = None if logprobs is None else logprobs.take(kept)
    return Batch(s.counts.steps, numbers, choices, tokens, logprobs)
