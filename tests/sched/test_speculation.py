"""Speculation: the option, the drafters, how many tokens are drafted, and the same tokens whatever is drafted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scheduler_machine import (
    DraftingSchedulerMachine,
    RecurrentDraftingSchedulerMachine,
    SchedulerMachine,
)

from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.sched import commit, drafting, planning
from zinc_rt.sched.checks.drafters import KINDS, DraftKind
from zinc_rt.sched.kv.kv_cache import KvCache
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import POSITION, Request
from zinc_rt.sched.speculation import (
    REST_TOKENS,
    DraftLength,
    DraftTask,
    NgramDrafter,
    Speculation,
    SpeculationOptions,
    expect_step,
    parse_speculation,
)
from zinc_rt.sched.state import SchedulerState
from zinc_rt.sched.usage.ledger import StepKind


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("off", None),
        ("ngram", SpeculationOptions("ngram", 4)),
        ("ngram:8", SpeculationOptions("ngram", 8)),
        ("draft:a.gguf", SpeculationOptions("draft", 4, "a.gguf")),
        ("draft:C:\\a.gguf:2", SpeculationOptions("draft", 2, "C:\\a.gguf")),
        ("draft:3", SpeculationOptions("draft", 4, "3")),
    ],
)
def test_option_is_parsed(text: str, options: SpeculationOptions | None) -> None:
    assert parse_speculation(text) == options


@pytest.mark.parametrize(
    "text", ["", "on", "ngram:", "ngram:0", "ngram:9", "ngram:two", "draft", "draft:", "draft:a:9"]
)
def test_invalid_option_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected off, ngram"):
        parse_speculation(text)


def draft_ngrams(drafter: NgramDrafter, tokens: Sequence[int], count: int = 4, number: int = 1) -> list[int]:
    (drafts,) = drafter.propose([DraftTask(number, 0, np.array(tokens, np.int32), count)])
    return list(drafts)


def test_ngrams_continue_with_the_last_longest_match() -> None:
    assert draft_ngrams(NgramDrafter(), [1, 2, 3, 4, 9, 1, 2, 5, 6, 7, 8, 1, 2]) == [5, 6, 7, 8]
    assert draft_ngrams(NgramDrafter(), [7, 1, 2, 3, 0, 8, 1, 2, 4, 7, 1, 2]) == [3, 0, 8, 1]
    assert draft_ngrams(NgramDrafter(), [1, 2, 3, 4]) == []
    assert draft_ngrams(NgramDrafter(), [5]) == []


def test_ngrams_continue_a_repetition() -> None:
    assert draft_ngrams(NgramDrafter(), [9, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


def test_ngrams_of_a_growing_request_equal_those_of_its_whole_text() -> None:
    chance, tokens, grown = random.Random(3), [0], NgramDrafter()
    for _ in range(300):
        tokens += [chance.randrange(3) for _ in range(chance.randint(1, 5))]
        assert draft_ngrams(grown, tokens) == draft_ngrams(NgramDrafter(), tokens)
    grown.forget(1, 0)
    assert draft_ngrams(grown, [4, 4]) == []


def test_draft_length_rests_and_grows_again() -> None:
    length = DraftLength(4)
    assert length.current(10) == 4
    for index in range(3):
        length.record(20 + index, 4, 0)
    assert length.current(22) == length.current(21 + REST_TOKENS) == 0
    counts = []
    for _ in range(4):
        counts.append(length.current(22 + REST_TOKENS))
        length.record(22 + REST_TOKENS, counts[-1], counts[-1])
    assert counts == [1, 2, 4, 4]


def test_long_drafts_do_not_rest_at_a_good_acceptance() -> None:
    """Of eight drafts of which each is right with probability 0.7, a third is accepted."""
    chance, length = random.Random(5), DraftLength(8)
    for _ in range(300):
        right = [chance.random() < 0.7 for _ in range(8)]
        length.record(100, 8, right.index(False) if False in right else 8)
        assert length.current(100) == 8
    assert 0.55 < length.acceptance < 0.85


def test_most_tokens_per_time_decide_the_number_of_drafts() -> None:
    speculation = Speculation(NgramDrafter(), 4)
    seen = []
    for _ in range(11):
        seen.append(speculation.choose_count(2, 0.8, 4))
        speculation.observe(2, 2 * (seen[-1] + 1), [100, 110, 120, 250, 260][seen[-1]])
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 2]
    assert speculation.choose_count(2, 0.2, 4) == 1
    assert speculation.choose_count(2, 0.01, 4) == 0


@pytest.mark.parametrize("drafts", [0, 1, 3])
@pytest.mark.parametrize("recurrent", [False, True])
def test_expected_step_is_the_mean_of_random_steps(drafts: int, recurrent: bool) -> None:
    chance, behind, tokens, drafted, steps = random.Random(5), 0, 0, 0, 20_000
    for _ in range(steps):
        count = drafts - behind
        accepted = next((at for at in range(count) if chance.random() > 0.7), count)
        behind = behind + accepted + 1 if recurrent and accepted < count else 0
        tokens, drafted = tokens + accepted + 1, drafted + count
    expected = expect_step(0.7, drafts, recurrent=recurrent)
    assert expected == pytest.approx((tokens / steps, drafted / steps), rel=0.02)


def test_recomputed_tokens_make_drafts_worth_less() -> None:
    counts = []
    for recurrent in (False, True):
        speculation = Speculation(NgramDrafter(), 1, recurrent=recurrent)
        for took in (100, 160) * 2:
            speculation.observe(1, 1 + (took > 100), took)
        counts.append(speculation.choose_count(1, 0.7, 1))
    assert counts == [1, 0]


class FailingDrafter(NgramDrafter):
    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        raise ZincError("the draft device is gone")


def test_failed_drafter_ends_speculation() -> None:
    machine = DraftingSchedulerMachine()
    speculation = machine.scheduler.speculation
    assert speculation is not None
    speculation.drafter = FailingDrafter()
    answer_all(machine, random.Random(1))
    assert speculation.failure == "speculation is off, because the drafter failed: the draft device is gone"
    assert not speculation.drafted


# --- the same tokens, whatever is drafted


def answer_all(machine: SchedulerMachine, chance: random.Random, requests: int = 12) -> None:
    """Answer random requests. The machine compares each token with plain decoding, and checks every invariant."""
    for _ in range(requests):
        prompt = [chance.randint(0, 1) for _ in range(chance.randint(1, 18))]
        fill_ms = chance.choice([None, None, 0])
        machine.submit(
            chance.randrange(3), prompt, chance.randint(1, 14), chance.randint(0, 3), False, None,
            chance.choice([1, 1, 2]), 0, fill_ms,
        )  # fmt: skip
        machine.run(chance.randint(0, 3), 10)
        machine.nothing_is_wrong()
        what = chance.random()
        running = list(machine.scheduler.running())
        if running and what < 0.2:
            machine.scheduler.park(chance.choice(running))
        elif running and what < 0.3:
            machine.scheduler.evict(chance.choice(running))
        elif what < 0.4:
            machine.hold(chance.randint(0, 3), True)
    machine.teardown()


def make_machine(kind: DraftKind, *, adaptive: bool = False, recurrent: bool = False) -> DraftingSchedulerMachine:
    machine = RecurrentDraftingSchedulerMachine() if recurrent else DraftingSchedulerMachine()
    machine.drafter.kind = kind
    assert machine.scheduler.speculation is not None
    machine.scheduler.speculation.adaptive = adaptive
    return machine


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_change_no_token(kind: DraftKind, recurrent: bool, slow_counts: Callable[[int, int], int]) -> None:
    drafted = accepted = 0
    for seed in range(slow_counts(6, 2000)):
        machine = make_machine(kind, adaptive=seed % 3 == 0, recurrent=recurrent)
        answer_all(machine, random.Random(seed))
        speculation = machine.scheduler.speculation
        assert speculation is not None and not speculation.failure
        drafted, accepted = drafted + speculation.drafted, accepted + speculation.accepted
    assert drafted > 50
    if kind in ("right", "wrong"):
        assert accepted == (drafted if kind == "right" else 0)


@pytest.mark.parametrize("recurrent", [False, True])
def test_right_drafts_take_fewer_steps(recurrent: bool) -> None:
    steps = {}
    for kind in ("right", "wrong"):
        machine = make_machine(kind, recurrent=recurrent)
        machine.submit(1, [1, 0, 1], 14, 2, False, None, 1, 0)
        machine.drain()
        steps[kind] = machine.scheduler.counts.steps
    assert steps == {"right": 5, "wrong": 14}


def test_request_limits_its_drafts() -> None:
    machine = make_machine("right")
    machine.submit(1, [1, 0, 1], 14, 2, False, None, 1, 0)
    machine.scheduler.receive()
    (request,) = machine.scheduler.requests()
    request.drafts = 0
    machine.drain()
    assert not machine.drafter.drafted


# --- planted faults: each is found by the invariants, the checking runner or the tokens


def accept_all(s: SchedulerState, plan: StepPlan, rows: np.ndarray) -> np.ndarray:
    slots, inputs = plan.row_slot[rows], plan.logit_row[rows]
    follows: np.ndarray = s.slots.decoding[slots] & (s.slots.position[slots] == plan.position[inputs])
    return follows


def accept_first(real: Any) -> Any:
    """Accept the first draft of a request without a comparison."""

    def follow(s: SchedulerState, plan: StepPlan, rows: np.ndarray) -> np.ndarray:
        slots, inputs = plan.row_slot[rows], plan.logit_row[rows]
        first = np.searchsorted(plan.row_slot[: plan.decode_rows], slots) + 1
        right: np.ndarray = real(s, plan, rows)
        return right | ((rows == first) & (s.slots.position[slots] == plan.position[inputs]))

    return follow


def plan_one_position(real: Any) -> Any:
    """Sample all rows of a decode at the same position, and so with the same random number."""

    def plan_decodes(s: SchedulerState, plan: StepPlan, decodes: Any, drafts: Any) -> None:
        real(s, plan, decodes, drafts)
        if drafts is not None:
            plan.row_position[: plan.rows] = s.slots.position[plan.row_slot[: plan.rows]] + 1

    return plan_decodes


def commit_early(real: Any) -> Any:
    """Record the drafts as computed, so that their pages are cached before they are accepted."""

    def commit_step(s: SchedulerState, plan: StepPlan, *more: Any) -> Any:
        for slot in np.unique(plan.row_slot[: plan.decode_rows]).tolist() if plan.drafts else ():
            request = s.slots.requests[slot]
            if request is not None and request.holding is not None:
                end = int(plan.row_position[: plan.rows][plan.row_slot[: plan.rows] == slot].max())
                s.cache.record_computed(request.holding, s.slots.history[slot], end)
        return real(s, plan, *more)

    return commit_step


def keep_position(real: Any) -> Any:
    """Move a request on by the rejected drafts as well."""

    def record(s: SchedulerState, plan: StepPlan, rejected: np.ndarray) -> None:
        real(s, plan, rejected)
        for slot in np.unique(plan.row_slot[rejected]).tolist():
            request = s.slots.requests[slot]
            if request is not None and request.generated < request.limit - 1:
                request.row[POSITION] += 1

    return record


def place_all(s: SchedulerState, request: Request, count: int) -> int:
    return count


def forget_rejected(real: Any) -> Any:
    def charge(s: SchedulerState, plan: StepPlan) -> None:
        real(s, plan)
        if s.generated is not None:
            s.generated.counts[StepKind.DRAFT_REJECTED] = 0

    return charge


def forget_inputs(real: Any) -> Any:
    def charge(s: SchedulerState, plan: StepPlan) -> None:
        real(s, plan)
        if s.generated is not None:
            s.generated.counts[StepKind.DRAFT_INPUTS] = 0

    return charge


def advance_once(real: Any) -> Any:
    """Let a mask accept the first token of a step only."""

    def advance(s: SchedulerState, plan: StepPlan, *more: Any) -> None:
        *_, advanced = more
        if not advanced:
            real(s, plan, *more)

    return advance


def shift_inputs(real: Any) -> Any:
    def plan_decodes(s: SchedulerState, plan: StepPlan, decodes: Any, drafts: Any) -> None:
        real(s, plan, decodes, drafts)
        if drafts is not None:
            plan.logit_row[: plan.rows] = np.roll(plan.logit_row[: plan.rows], 1)

    return plan_decodes


FAULTS: dict[str, tuple[Any, str, Any, DraftKind]] = {
    "every draft is accepted": (commit, "_follow_committed", lambda real: accept_all, "wrong"),
    "the first draft is always accepted": (commit, "_follow_committed", accept_first, "share"),
    "one random number for all rows": (planning, "_plan_decodes", plan_one_position, "right"),
    "pages are cached before acceptance": (commit, "commit_step", commit_early, "wrong"),
    "the position passes rejected drafts": (commit, "_record_acceptance", keep_position, "wrong"),
    "drafts without a page": (drafting, "_count_placeable", lambda real: place_all, "right"),
    "rejected rows are not counted": (commit, "_charge_decodes", forget_rejected, "wrong"),
    "draft inputs are not counted": (commit, "_charge_decodes", forget_inputs, "right"),
    "a mask misses accepted tokens": (commit, "_advance_masks", advance_once, "right"),
    "rows read other tokens' logits": (planning, "_plan_decodes", shift_inputs, "share"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, plant, kind = FAULTS[name]
    planted = plant(getattr(module, function))
    monkeypatch.setattr(module, function, planted)
    if function == "commit_step":
        monkeypatch.setattr("zinc_rt.sched.scheduler.commit_step", planted)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        for seed in range(12):
            answer_all(make_machine(kind), random.Random(seed))


def test_spare_page_is_taken_for_drafts_only_if_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a further page, drafts are cut at the end of the last page, and no request is preempted for them."""
    monkeypatch.setattr(KvCache, "grow", lambda self, holding: False)
    machine = make_machine("right")
    machine.submit(1, [1, 0], 6, 2, False, None, 1, 0)
    while not machine.drafter.drafted:
        assert machine.one_step(10)
    plan = machine.scheduler.plan
    (request,) = machine.scheduler.requests()
    assert request.holding is not None and plan.drafts
    assert int(plan.position[: plan.tokens].max()) < request.holding.room
    assert not machine.scheduler.counts.evicted
    monkeypatch.undo()
    machine.teardown()
