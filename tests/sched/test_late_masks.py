"""A token mask that is not there in time delays its own row and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fake_masks import MS, FakeMask, ManualPool
from fake_runner import drawn_token
from test_scheduling import Bench

from zinc_rt.sched.mask_fills import WAIT_SECONDS, MaskFills
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.state import StepTimes
from zinc_rt.sched.tenant import Tenant


class MaskBench(Bench):
    """`plans`: of every step, (tokens, decoding slots with a token, rows)."""

    def __init__(self, tenants: Sequence[Tenant] = (Tenant("a"),), **limits: int) -> None:
        super().__init__(tenants, **limits)
        self.masks = ManualPool(self.s.fills)
        self.plans: list[tuple[int, int, int]] = []
        self.s.observers.append(self)

    def event(self, what: str, request: object, amount: int) -> None:
        pass

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None:
        self.plans.append((plan.tokens, plan.decodes, plan.rows))

    def generated_tokens(self, number: int) -> list[int]:
        return self.generated.get((number, 0), [])


def expected_tokens(prompt: int, count: int) -> list[int]:
    return [drawn_token(3, 0, prompt + index) for index in range(count)]


@pytest.mark.parametrize("rows", [0, 9])
def test_late_row_is_sampled_later_while_others_continue(rows: int) -> None:
    b = MaskBench(rows=rows)
    masked, free = b.submit(0, [1] * 5, 12, mask=FakeMask()), b.submit(0, [2] * 7, 12)
    b.step(3)
    b.masks.held = True
    b.step(2)  # the first has the mask that was filled before
    count = len(b.generated_tokens(masked))
    assert b.plans[-1] == (2, 2, 2) and len(b.generated_tokens(free)) == count + 1 and b.s.counts.masks_late == 1
    b.step(3)
    assert b.plans[-1] == (1, 1, 1) and (len(b.generated_tokens(masked)), len(b.generated_tokens(free))) == (
        count,
        count + 4,
    )
    b.masks.held = False
    b.masks.release()
    b.step()
    assert b.plans[-1] == (0, 1, 1) and (len(b.generated_tokens(masked)), len(b.generated_tokens(free))) == (
        count + 1,
        count + 4,
    )
    b.step()
    assert b.plans[-1] == (2, 2, 2) and (len(b.generated_tokens(masked)), len(b.generated_tokens(free))) == (
        count + 2,
        count + 5,
    )
    b.until_idle()
    assert b.generated_tokens(masked) == expected_tokens(5, 12) and b.generated_tokens(free) == expected_tokens(
        7, 12
    )
    assert b.s.counts.masks_late == 1 and not b.s.ledger.find_problems()


@pytest.mark.parametrize("rows", [0, 9])
@pytest.mark.parametrize("prompt", [1, 5, 40])
def test_first_token_can_be_late(prompt: int, rows: int) -> None:
    b = MaskBench(rows=rows)
    b.masks.held = True
    masked = b.submit(0, [1] * prompt, 6, mask=FakeMask())
    b.step(4)
    assert not b.generated_tokens(masked) and b.s.counts.masks_late == 1 and not b.s.check()
    assert sum(tokens for tokens, _, _ in b.plans) == prompt, "its prompt was computed once"
    b.masks.held = False
    b.masks.release()
    b.until_idle()
    assert b.generated_tokens(masked) == expected_tokens(prompt, 6)
    usage = b.s.ledger.usage("a")
    assert usage["prompt_tokens_computed"] == prompt and usage["decode_inputs"] == 5
    assert "tokens_recomputed" not in usage and not b.s.ledger.find_problems()


def test_scheduler_with_only_late_rows_waits_briefly_and_has_work() -> None:
    b = MaskBench()
    b.masks.held = True
    number = b.submit(0, [1, 2], 3, mask=FakeMask())
    b.step()
    before = len(b.masks.waits)
    batch = b.step()
    assert batch is not None and not len(batch.tokens) and not batch.ended
    assert b.masks.waits[before:] == [WAIT_SECONDS]
    b.masks.held = False
    b.masks.release()
    b.until_idle()
    assert b.generated_tokens(number) == expected_tokens(2, 3)


def test_no_step_waits_longer_than_two_milliseconds() -> None:
    b = MaskBench()
    b.masks.held = True
    for _ in range(3):
        b.submit(0, [1, 2], 3, mask=FakeMask())
    b.step(5)
    assert WAIT_SECONDS == 0.002 and b.masks.waits == [WAIT_SECONDS] * 5, "one wait a step, for all masks"


@pytest.mark.parametrize("ready", [False, True])
def test_slow_matcher_fails_its_own_request(ready: bool) -> None:
    """`ready`: its slow fill is over before it is needed; else it goes on."""
    b = MaskBench()
    slow = FakeMask(lambda: setattr(b, "now", b.now + 51 * MS))
    good, other = FakeMask(), b.submit(0, [2] * 3, 8)
    masked = b.submit(0, [3] * 4, 8, mask=good)
    b.step(2)
    b.masks.held = not ready
    number = b.submit(0, [1] * 5, 8, mask=slow)
    b.step(2)
    if not ready:
        b.masks.held = False
        b.masks.release()
    b.until_idle()
    assert b.ended == {(number, 0): "grammar_too_slow", (other, 0): "length", (masked, 0): "length"}
    assert (
        not b.generated_tokens(number)
        and b.generated_tokens(other) == expected_tokens(3, 8)
        and b.generated_tokens(masked) == expected_tokens(4, 8)
    )
    assert not b.s.ledger.find_problems() and not b.s.check()


def test_matcher_just_below_the_limit_succeeds() -> None:
    b = MaskBench()
    number = b.submit(0, [1] * 5, 8, mask=FakeMask(lambda: setattr(b, "now", b.now + 50 * MS)))
    b.until_idle()
    assert b.ended == {(number, 0): "length"} and b.generated_tokens(number) == expected_tokens(5, 8)


@pytest.mark.parametrize("starved_ms", [0, 10, 11])
def test_time_without_a_cpu_does_not_count(starved_ms: int) -> None:
    """61 ms by the clock, of which the machine was busy with other things for some."""
    clock, starved = [0], [0]
    fills = MaskFills(64, 2, lambda: clock[0])
    ManualPool(fills)
    fills.starved_ns = lambda thread: starved[0]

    def spend_time() -> None:
        clock[0] += 61 * MS
        starved[0] += starved_ms * MS // 2  # of each of two threads

    mask = FakeMask(spend_time)
    fills.begin(mask)
    assert fills.failure(mask) == ("" if starved_ms == 11 else "grammar_too_slow")


def test_matcher_that_hangs_fails_its_request_while_it_hangs() -> None:
    clock = [0]
    fills = MaskFills(64, 2, lambda: clock[0])
    pool = ManualPool(fills)
    hanging, seen = FakeMask(), list[str]()

    def hang_fill() -> None:
        for ms in (0, 50, 51, 5000):
            clock[0] = ms * MS
            seen.append(fills.failure(hanging))
        assert fills.words(hanging) is None

    hanging.spend = hang_fill
    pool.held = True
    fills.begin(hanging)
    clock[0] = 1000 * MS  # until it begins, nothing counts
    assert fills.failure(hanging) == ""
    clock[0] = 0
    pool.release()
    assert seen == ["", "", "grammar_too_slow", "grammar_too_slow"] and pool.waiting == []
    fills.drop(hanging)
    fine = FakeMask()
    pool.held = False
    fills.begin(fine)
    assert fills.words(fine) is not None


def test_matcher_that_raises_fails_its_own_request() -> None:
    def raise_broken_state() -> None:
        raise ValueError("no such state")

    b = MaskBench()
    number, other = b.submit(0, [1] * 5, 4, mask=FakeMask(raise_broken_state)), b.submit(0, [1] * 6, 4)
    b.until_idle()
    assert b.ended == {(number, 0): "grammar_failed", (other, 0): "length"}


def park_request(bench: MaskBench, number: int) -> None:
    bench.s.park(bench.request(number))


def evict_request(bench: MaskBench, number: int) -> None:
    bench.s.evict(bench.request(number))


def fail_request_step(bench: MaskBench, number: int) -> None:
    bench.runner.fails = 1


def hold_request(bench: MaskBench, number: int) -> None:
    bench.s.hold(number)
    bench.step()
    bench.s.resume(number)


@pytest.mark.parametrize("rows", [0, 9])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("disturbance", [park_request, evict_request, fail_request_step, hold_request])
def test_request_with_a_late_row_survives(
    disturbance: Callable[[MaskBench, int], None], first: bool, rows: int
) -> None:
    """`first`: it is the first token that is late."""
    b = MaskBench(rows=rows)
    b.masks.held = first
    masked, free = b.submit(0, [1] * 8, 9, mask=FakeMask()), b.submit(0, [2] * 7, 12)
    b.step(2)
    b.masks.held = True
    b.step(2)
    assert [request.number for request in b.s.late] == [masked]
    disturbance(b, masked)
    b.step(2)
    b.masks.held = False
    b.masks.release()
    b.until_idle()
    assert b.generated_tokens(masked) == expected_tokens(8, 9) and b.generated_tokens(free) == expected_tokens(
        7, 12
    )
    assert not b.s.ledger.find_problems() and not b.cache.pools[0].pool.used and not b.s.late


def test_cancelled_request_with_a_late_row_is_removed() -> None:
    b = MaskBench(rows=9)
    number = b.submit(0, [1] * 8, 9, mask=FakeMask())
    b.step(2)
    b.masks.held = True
    b.step(2)
    b.s.cancel(number)
    b.step()
    assert b.ended == {(number, 0): "cancelled"} and not b.s.late and not b.s.masked
    assert not b.cache.pools[0].pool.used
    b.masks.release()
    assert b.step() is None


def test_row_without_finite_logits_fails_while_its_mask_is_late() -> None:
    b = MaskBench()
    number = b.submit(0, [1] * 8, 9, mask=FakeMask())
    b.step(2)
    b.masks.held = True
    b.step()
    b.runner.nan.add(number)
    b.until_idle()
    assert b.ended == {(number, 0): "logits_not_finite"} and not b.s.ledger.find_problems()


def test_every_choice_has_a_mask_of_its_own_tokens() -> None:
    b = MaskBench()
    mask = FakeMask()
    number = b.submit(0, [1] * 9, 7, n=3, mask=mask)
    b.step()
    choices = b.s.live[number]
    b.masks.held = True
    for _ in range(60):
        b.step()
        b.masks.release(1)
        if not b.s.live:
            break
    for choice, request in enumerate(choices):
        assert b.generated[number, choice] == [drawn_token(3, choice, 9 + index) for index in range(7)]
        assert request.mask is not None and request.mask is not mask


def test_threads_fill_masks() -> None:
    """Without a test's pool: the words are those of the mask, after each token."""

    class OnesMask(FakeMask):
        def fill(self, words: np.ndarray) -> None:
            super().fill(words)
            words[:] = len(self.tokens)

    fills, mask = MaskFills(70, 4, lambda: 0), OnesMask()
    fills.wait = lambda pending, seconds: [item.result() for item in pending]  # type: ignore[misc]
    fills.begin(mask)
    for index in range(3):
        fills.settle([mask])
        words = fills.words(mask)
        assert words is not None and words.tolist() == [index] * 3
        mask.accept(index)
        fills.refill(mask)
    fills.settle([mask])
    fills.drop(mask)
