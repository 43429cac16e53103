"""Draft tokens for the decodes of a step (speculation.py). They are written behind the requests' tokens in the
history of their slots, where accepted ones stay and rejected ones are overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.request import Request
from zinc_rt.sched.slots import DecodeSet
from zinc_rt.sched.speculation import MOST_DRAFTS, Drafter, DraftTask, Speculation
from zinc_rt.sched.state import GapBudget, SchedulerState
from zinc_rt.sched.token_mask import TokenMask

BATCH_PART = 2  # decodes with their drafts take at most one in so many tokens of a step


@dataclass(slots=True)
class Drafts:
    """`counts`: i32 [decodes], the draft tokens of each decode. `masks`: the token masks of rows after drafts, by
    row of the step."""

    counts: np.ndarray
    masks: dict[int, np.ndarray]


def make_speculation(s: SchedulerState, drafter: Drafter) -> Speculation:
    """Return the speculation of a scheduler. Raises UsageError for limits without drafts."""
    most = min(MOST_DRAFTS, s.cache.page_tokens)
    if not 1 <= s.limits.drafts <= most:
        raise UsageError(f"{s.limits.drafts} draft tokens: expected 1 to {most}")
    return Speculation(drafter, s.limits.drafts, recurrent=s.cache.rows is not None)


def draft_tokens(
    s: SchedulerState, decodes: DecodeSet, prompts: Sequence[Request], gap: GapBudget | None
) -> Drafts | None:
    """Draft tokens for the decodes of a step; None if there are none. Drafts use what decodes and prompts leave of
    the step's tokens and time: with a latency budget, none are added to a step with prompts."""
    speculation, n = s.speculation, len(decodes.slots)
    if speculation is None or speculation.failure or not n or s.probation:
        return None
    if prompts and (gap is not None or s.limits.submission_ns is not None):
        return None
    behind = 0 if s.cache.rows is None else int(s.slots.behind[decodes.index].sum())
    left = s.limits.step_tokens - behind - sum(r.length - r.computed for r in prompts)
    maximum = min(s.limits.drafts, min(s.limits.step_tokens // BATCH_PART, left) // n - 1)
    if s.cache.rows is not None:  # all rejected drafts, computed again, have room beside a token of each slot
        maximum = min(maximum, (s.limits.step_tokens - s.limits.slots - behind) // n)
    if gap is not None:
        while maximum > 0 and _expect_ns(s, decodes, maximum) > gap.ns:
            maximum -= 1
    if maximum <= 0:
        return None
    tasks = _list_tasks(s, decodes, maximum)
    if not tasks:
        return None
    proposals = speculation.propose([task for _, task in tasks], s.clock_ns) or [()] * len(tasks)
    s.fills.settle(s.masked[slot] for index, _ in tasks if (slot := int(decodes.slots[index])) in s.masked)
    drafted: dict[int, tuple[Request, list[int], list[TokenMask]]] = {}
    for (index, task), proposal in zip(tasks, proposals, strict=True):
        request = s.slots.requests[int(decodes.slots[index])]
        assert request is not None
        tokens = _cut_invalid(s, proposal, task.most)
        masks = [] if request.mask is None else _begin_masks(s, request.mask, tokens)
        drafted[index] = request, tokens, masks
    s.fills.settle(mask for _, _, masks in drafted.values() for mask in masks)
    counts, words_of = np.zeros(n, np.int32), {}
    for index, (request, tokens, masks) in drafted.items():
        words = [s.fills.take(mask) for mask in masks]
        if request.mask is not None:
            tokens = tokens[: next((at for at, item in enumerate(words) if item is None), len(words))]
        tokens = tokens[: _count_placeable(s, request, len(tokens))]
        if tokens and s.cache.rows is not None and not _keep_state(s, request):
            tokens = []
        first, counts[index], words_of[index] = request.length, len(tokens), words[: len(tokens)]
        s.slots.history[request.slot, first : first + len(tokens)] = tokens
    if not counts.any():
        return None
    starts = np.cumsum(counts + 1) - counts
    rows = {int(starts[index]) + at: item for index, words in words_of.items() for at, item in enumerate(words)}
    return Drafts(counts, {row: item for row, item in rows.items() if item is not None})


def _expect_ns(s: SchedulerState, decodes: DecodeSet, drafts: int) -> int:
    """Return the expected time of a step with so many drafts of each decode."""
    n = len(decodes.slots)
    return s.cost.nanoseconds(0, n, decodes.context + n * drafts, n * drafts)


def _list_tasks(s: SchedulerState, decodes: DecodeSet, maximum: int) -> list[tuple[int, DraftTask]]:
    """Return the tasks of the requests that may have drafts, by index of the decode. Penalties depend on the
    preceding tokens, so penalised requests have none."""
    speculation = s.speculation
    assert speculation is not None
    wanted: list[tuple[int, Request, int]] = []
    acceptance = 0.0
    for index, slot in enumerate(decodes.slots.tolist()):
        request = s.slots.requests[slot]
        assert request is not None
        if request.sampling.penalised:
            continue
        length = speculation.length(request.number, request.choice)
        count = min(
            maximum,
            maximum if request.drafts is None else request.drafts,
            length.current(request.length) if speculation.adaptive else maximum,
            request.most_placed - request.length,
            maximum - int(s.slots.behind[slot]),  # recomputed tokens take the place of drafts
            maximum if s.cache.rows is None else _count_placeable(s, request, maximum),
        )
        if count > 0:
            wanted.append((index, request, count))
            acceptance += length.acceptance
    if not wanted:
        return []
    most, changes = maximum, s.slots.table_changes[0]
    if speculation.adaptive:
        most = speculation.choose_count(len(decodes.slots), acceptance / len(wanted), maximum)
    tasks = []
    for index, r, count in wanted:
        if (count := min(count, most - int(s.slots.behind[r.slot]))) > 0:
            tokens = s.slots.history[r.slot, : r.length]
            tasks.append((index, DraftTask(r.number, r.choice, tokens, count, r.slot, changes)))
    return tasks


def _cut_invalid(s: SchedulerState, proposal: Sequence[int], count: int) -> list[int]:
    """Return the proposal up to `count` tokens and up to the first that is not in the vocabulary."""
    tokens = [int(token) for token in proposal[:count]]
    wrong = (index for index, token in enumerate(tokens) if not 0 <= token < s.vocab)
    return tokens[: next(wrong, len(tokens))]


def _count_placeable(s: SchedulerState, request: Request, count: int) -> int:
    """Return how many of `count` drafts fit the request's pages, with one more page if they need it and one is
    available. With recurrent state they end with a page, so that the state there can be kept."""
    holding = request.holding
    assert holding is not None
    room = holding.room - request.length
    if count > room and s.cache.rows is None and s.cache.grow(holding):
        s.slots.send_pages([request])
        room = holding.room - request.length
    return min(count, room)


def _keep_state(s: SchedulerState, request: Request) -> bool:
    """Have the step write a spare row, because drafts may be rejected. Return False without a row. A free row is
    left for each free slot."""
    holding = request.holding
    assert holding is not None
    s.sync(request)
    kept = s.cache.take_spare(holding, remaining=len(s.slots.free))
    s.sync_rows(request)
    return kept


def _begin_masks(s: SchedulerState, mask: TokenMask, tokens: Sequence[int]) -> list[TokenMask]:
    """Begin to fill the masks after each draft, up to the first that the grammar does not permit or after which no
    token can follow. `mask` is the request's; without its words, there are no drafts."""
    masks: list[TokenMask] = []
    if s.fills.words(mask) is None:
        return masks
    for token in tokens:
        mask = mask.fork()
        mask.accept(token)
        if mask.failure or mask.complete:
            break
        s.fills.begin(mask)
        masks.append(mask)
    return masks
