"""What a scheduler does besides admitting and running: holds, deadlines, choices, sessions, quotas, long waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fake_runner import CheckingRunner, drawn_token
from scheduler_machine import only_hangs

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.slot_record import SlotFlag
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import Batch, NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.sched.usage.ledger import UsageLedger

PAGE, CTX = 4, 128
SECOND = 1_000_000_000


class Bench:
    """A scheduler with a runner that reads the same data as a kernel would. A `step` takes 10 ms."""

    def __init__(
        self, tenants: Sequence[Tenant], *, slots: int = 4, pages: int = 64, rows: int = 0, **limits: int
    ) -> None:
        self.now = 0
        group = PageGroup("full", pages)
        self.cache = KvCache((group,), PAGE, 32, rows)
        self.runner = CheckingRunner(self.cache, slots, CTX)
        ledger = UsageLedger([tenant.name for tenant in tenants], {"full": pages})
        asked = SchedulerLimits(slots, CTX, **{"step_tokens": 32, "check_every": 1, **limits})
        self.s = Scheduler(asked, tenants, self.cache, self.runner, lambda: self.now, ledger=ledger)
        self.runner.scheduler = self.s
        self.s.failed = only_hangs
        self.spaces = [make_namespace("m", "canonical-1", "f32", PAGE) for _ in tenants]
        self.generated: dict[tuple[int, int], list[int]] = {}
        self.ended: dict[tuple[int, int], str] = {}
        self.number = 0

    def submit(self, tenant: int, prompt: Sequence[int], limit: int, **more: object) -> int:
        self.number += 1
        sampling = Sampling(limit, seed=3, n=int(str(more.pop("n", 1))))
        new = NewRequest(self.number, tenant, list(prompt), self.spaces[tenant], sampling)
        self.s.submit(replace(new, **more))
        return self.number

    def step(self, count: int = 1, *, ms: int = 10) -> Batch | None:
        batch = None
        for _ in range(count):
            self.now += ms * 1_000_000
            batch = self.s.step()
            if batch is not None:
                rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
                for number, choice, token in rows:
                    self.generated.setdefault((number, choice), []).append(token)
                for number, choice, reason in batch.ended:
                    self.ended[number, choice] = reason
        return batch

    def until_idle(self, maximum: int = 2000) -> None:
        for _ in range(maximum):
            self.step()
            if not self.s.live:
                return
        raise AssertionError("it does not end")

    def request(self, number: int) -> Request:
        return self.s.live[number][0]


# --- readers


def test_stalled_reader_keeps_slot_one_second_and_pages_thirty() -> None:
    b = Bench([Tenant("a")])
    number = b.submit(0, [1] * 6, 50)
    b.step(3)
    count = len(b.generated[number, 0])
    b.s.hold(number)
    b.step(5)
    assert len(b.generated[number, 0]) == count and b.request(number).slot >= 0
    due = b.s.find_next_event()
    assert due is not None and b.now < due <= b.now + SECOND
    b.step(ms=1000)
    assert b.request(number).state is State.PARKED and b.cache.pools[0].pool.used
    b.step(ms=28_000)
    assert b.request(number).state is State.PARKED
    b.step(ms=2000)
    assert b.ended == {(number, 0): "client_too_slow"} and not b.cache.pools[0].pool.used


@pytest.mark.parametrize("after_ms", [100, 5000])
def test_resumed_reader_misses_no_tokens(after_ms: int) -> None:
    b = Bench([Tenant("a")])
    number = b.submit(0, [1] * 6, 20)
    b.step(3)
    b.s.hold(number)
    b.step(2, ms=after_ms)
    b.s.resume(number)
    b.until_idle()
    assert b.generated[number, 0] == [drawn_token(3, 0, 6 + index) for index in range(20)]


def hold_between_plan_and_submission(bench: Bench, number: int) -> None:
    """Plan the next step before its reader stalls, and submit it afterwards."""
    schedule = bench.s.schedule

    def schedule_and_hold() -> StepPlan:
        plan = schedule()
        bench.s.hold(number)
        bench.s.schedule = schedule  # type: ignore[method-assign]
        return plan

    bench.s.schedule = schedule_and_hold  # type: ignore[method-assign]


@pytest.mark.parametrize("rows", [0, 24])
@pytest.mark.parametrize("prompt", [1, 6, 8, 40])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 9])  # of the prompt, of its last piece, of a token
def test_token_of_a_planned_step_is_skipped_and_drawn_again(step: int, prompt: int, rows: int) -> None:
    b = Bench([Tenant("a"), Tenant("b")], slots=16, pages=300, rows=rows)
    slow = b.submit(0, range(prompt), 20)
    others = [b.submit(1, [n, n + 1, 7], 20) for n in range(15)]
    b.step(step - 1)
    count = len(b.generated.get((slow, 0), ()))
    hold_between_plan_and_submission(b, slow)
    b.step(6)
    assert len(b.generated.get((slow, 0), ())) == count
    assert min(len(b.generated[number, 0]) for number in others) >= 4
    b.s.resume(slow)
    b.until_idle()
    assert b.generated[slow, 0] == [drawn_token(3, 0, prompt + index) for index in range(20)]
    for number in others:
        assert b.generated[number, 0] == [drawn_token(3, 0, 3 + index) for index in range(20)]
    assert set(b.ended.values()) == {"length"}


def test_reader_that_stalls_and_resumes_before_submission_misses_nothing() -> None:
    b = Bench([Tenant("a")])
    number = b.submit(0, [1] * 6, 20)
    for _ in range(8):
        hold_between_plan_and_submission(b, number)
        b.step()
        b.s.resume(number)
        b.step()
    b.until_idle()
    assert b.generated[number, 0] == [drawn_token(3, 0, 6 + index) for index in range(20)]


@pytest.mark.parametrize("steps", [1, 10, 100, 101])
def test_stalled_reader_is_kept_for_a_number_of_steps(steps: int) -> None:
    b = Bench([Tenant("a")], client_timeout_steps=100)
    slow, other = b.submit(0, [1] * 6, 20), b.submit(0, [2] * 6, 118)
    b.step(3)
    b.s.hold(slow)
    b.step(steps)
    b.s.resume(slow)
    b.until_idle()
    result = [drawn_token(3, 0, 6 + index) for index in range(118)]
    assert b.generated[other, 0] == result
    assert b.generated[slow, 0] == (result[:20] if steps <= 100 else result[:3])
    assert b.ended[slow, 0] == ("length" if steps <= 100 else "client_too_slow")


def test_records_have_backpressure_while_their_reader_stalls() -> None:
    b = Bench([Tenant("a")])
    number = b.submit(0, [1] * 6, 60)
    b.step(3)
    slot = b.request(number).slot
    b.s.hold(number)
    b.step()
    assert b.s.records["flags"][slot] & SlotFlag.BACKPRESSURE
    b.s.resume(number)
    b.step()
    assert not b.s.records["flags"][slot] & SlotFlag.BACKPRESSURE
    b.s.hold(number)
    b.step(2, ms=1000)  # it is parked
    assert b.request(number).slot < 0
    b.s.resume(number)
    b.step(2)
    assert b.request(number).slot >= 0 and not (b.s.records["flags"] & SlotFlag.BACKPRESSURE).any()


def test_deadline_ends_waiting_and_running_requests() -> None:
    b = Bench([Tenant("a")], slots=1)
    runs = b.submit(0, [1, 2], 60, deadline_ns=SECOND)
    waits = b.submit(0, [1, 2], 60, deadline_ns=SECOND // 2)
    b.step(2)
    assert b.s.find_next_event() == SECOND // 2
    b.step(ms=600)
    assert b.ended == {(waits, 0): "deadline"}
    b.step(ms=600)
    assert b.ended[runs, 0] == "deadline" and not b.s.live


# --- choices


@pytest.mark.parametrize("rows", [0, 9])
@pytest.mark.parametrize("prompt", [1, 4, 5, 7, 30])
def test_choices_share_the_prompt_and_sample_independently(prompt: int, rows: int) -> None:
    b = Bench([Tenant("a")], rows=rows)
    number = b.submit(0, range(prompt), 6, n=3)
    b.until_idle()
    for choice in range(3):
        assert b.generated[number, choice] == [drawn_token(3, choice, prompt + index) for index in range(6)]
    full = (prompt - 1) // PAGE * PAGE if prompt > 1 else 0
    computed = b.s.ledger.usage("a")["prompt_tokens_computed"] if b.s.ledger else 0
    if rows == 0:
        assert computed <= prompt + 2 * (prompt - full)


def test_more_choices_than_slots_are_rejected_with_the_limit() -> None:
    b = Bench([Tenant("a", slots_max=2)])
    with pytest.raises(UsageError, match="3 choices need a slot each: the maximum is 2"):
        b.submit(0, [1], 4, n=3)


def test_cancelling_one_choice_keeps_the_others() -> None:
    b = Bench([Tenant("a")])
    number = b.submit(0, [1] * 5, 9, n=2)
    b.step(4)
    b.s.cancel(number, "stop", choice=0)
    b.until_idle()
    assert b.ended == {(number, 0): "stop", (number, 1): "length"}
    assert b.generated[number, 1] == [drawn_token(3, 1, 5 + index) for index in range(9)]


# --- who waits long


def test_aged_lower_class_prompt_gets_an_eighth_of_the_step() -> None:
    tenants = [Tenant("desk", Priority.INTERACTIVE), Tenant("night", Priority.BATCH, slots_guaranteed=1)]
    b = Bench(tenants, slots=3, pages=512)
    b.submit(1, range(64), 2)
    b.step()  # its first chunk
    behind = b.request(1)
    computed = behind.computed
    for index in range(40):  # prompts of a higher class, without end
        b.submit(0, range(index, index + 100), 1)
    b.step(3)
    assert behind.computed == computed
    b.step(ms=3 * 60_000)
    assert behind.computed == computed + 4  # an eighth of 32


def test_long_waiting_request_gets_freed_pages() -> None:
    """Small requests without end would take every page that comes free; behind a band they do not."""
    b = Bench([Tenant("small"), Tenant("large")], slots=4, pages=16)
    for _ in range(3):
        b.submit(0, [1] * 8, 8)
    b.step(2)
    large = b.submit(1, range(40), 4)
    for index in range(3000):
        if len(b.s.live) < 5:
            b.submit(0, [index % 7] * 8, 8)
        b.step(ms=100)
        if (large, 0) in b.ended:
            break
    assert b.ended.get((large, 0)) == "length"
    assert index * 0.1 < 10 + 60  # seconds: a band, and what small ones take to end


# --- sessions and the cache


def test_session_pages_are_kept_for_the_next_turn() -> None:
    kept, lost = (
        Bench([Tenant("chat", session_pin_pages=pin), Tenant("other")], slots=2, pages=24) for pin in (8, 0)
    )
    for b in (kept, lost):
        first = b.submit(0, range(12), 4, session=7)
        b.until_idle()
        for index in range(3):
            b.submit(1, range(100 * index, 100 * index + 50), 2)
            b.until_idle()
        history = [*range(12), *b.generated[first, 0]]
        second = b.submit(0, [*history, 5], 2, session=7)
        b.step()
        assert b.request(second).cached == (12 if b is kept else 0)


def test_session_pin_is_dropped_under_pressure_and_on_timeout() -> None:
    b = Bench([Tenant("chat", session_pin_pages=8)], slots=1, pages=8)
    b.submit(0, range(20), 4, session=7)
    b.until_idle()
    assert len(b.s.pins) == 1
    b.submit(0, range(50, 74), 2)
    b.until_idle()
    assert not len(b.s.pins)
    b.submit(0, range(20), 4, session=8)
    b.until_idle()
    b.step(ms=1_801_000)
    assert not len(b.s.pins) and not b.cache.pools[0].pool.used


def test_cached_pages_expire_by_tenant_setting() -> None:
    b = Bench([Tenant("brief", cache_ttl_ns=2 * SECOND), Tenant("long")])
    for tenant in (0, 1):
        b.submit(tenant, range(13), 2)
    b.until_idle()
    idle = b.cache.pools[0].pool.idle
    b.step(ms=1000)
    assert b.cache.pools[0].pool.idle == idle
    b.step(ms=2000)
    assert b.cache.pools[0].pool.idle == idle // 2
    for tenant, cached in ((0, 0), (1, 12)):
        number = b.submit(tenant, range(13), 2)
        b.step()
        assert b.request(number).cached == cached


def test_state_is_checkpointed_where_prompts_diverge() -> None:
    """The second finds pages without a state behind them; the third finds the state that the second left there."""
    b = Bench([Tenant("a")], rows=20, checkpoint_tokens=4096)
    shared = list(range(20))
    cached = []
    for index in range(3):
        number = b.submit(0, [*shared, *range(100 * index + 100, 100 * index + 113)], 2)
        b.step()
        cached.append(b.request(number).cached)
        b.until_idle()
    assert cached == [0, 0, 20]


def test_next_turn_resumes_at_the_last_page_boundary_of_the_answer() -> None:
    b = Bench([Tenant("a")], slots=2, rows=9)
    first = b.submit(0, range(6), 14)
    b.until_idle()
    second = b.submit(0, [*range(6), *b.generated[first, 0], 9], 2)
    b.step()
    assert b.request(second).cached == 16


# --- quotas


def test_contradictory_quotas_are_rejected_unchanged_with_the_limit() -> None:
    b = Bench([Tenant("a", pages=(PageQuota(10),)), Tenant("b")], pages=32)
    before = list(b.s.tenants)
    for tenants, message in (
        ([before[0], Tenant("b", pages=(PageQuota(23),))], "at most 32 together"),
        ([Tenant("a", slots_guaranteed=3), Tenant("b", slots_guaranteed=2)], "guarantee at most 4 together"),
        ([Tenant("a", slots_guaranteed=3, slots_max=2), before[1]], "raise slots_max"),
        ([Tenant("b"), Tenant("a")], "list all of them"),
    ):
        with pytest.raises(UsageError) as refused:
            b.s.configure(tenants)
        assert message in f"{refused.value} {refused.value.next}"
        assert b.s.tenants == before
    b.submit(0, range(60), 8)
    b.step(2)
    future = b.s.configure([before[0], Tenant("b", pages=(PageQuota(20),))])
    b.step()
    error = future.exception()
    assert isinstance(error, UsageError) and "at most 1" in str(error.next)
    assert b.s.tenants == before and b.cache.pools[0].find_quota(1) == PageQuota()


def test_lowered_quotas_apply_immediately_and_new_tenants_are_appended() -> None:
    b = Bench([Tenant("a")], pages=64)
    numbers = [b.submit(0, [index] * 6, 20) for index in range(4)]
    b.step(3)
    b.s.configure([Tenant("a", slots_max=1, pages=(PageQuota(0, 7),)), Tenant("new", weight=2.0)])
    b.s.receive()
    assert b.s.bound == [1, 0] and b.cache.pools[0].count_charge(0) <= 7 and not b.s.check()
    b.spaces.append(make_namespace("m", "canonical-1", "f32", PAGE))
    other = b.submit(1, [1] * 6, 20)
    b.until_idle()
    for number in [*numbers, other]:
        assert b.generated[number, 0] == [drawn_token(3, 0, 6 + index) for index in range(20)]


def test_request_that_never_fits_is_rejected_with_the_limit() -> None:
    b = Bench([Tenant("a", pages=(PageQuota(0, 6),)), Tenant("b", prefill=(10, 20))])
    with pytest.raises(UsageError, match="29 tokens exceed the tenant's page quota: at most 24 fit"):
        b.submit(0, [1] * 20, 10)
    with pytest.raises(UsageError, match="the maximum is 20"):
        b.submit(1, [1] * 21, 1)
    with pytest.raises(UsageError, match="exceed the context of 128"):
        b.submit(0, [1] * 120, 10)
    with pytest.raises(UsageError, match="no tenant 5: there are 2"):
        b.s.submit(NewRequest(9, 5, [1], b.spaces[0]))


@pytest.mark.parametrize(("prompt", "limit"), [(24, 1), (20, 5), (1, 24)])
def test_request_that_just_fits_runs(prompt: int, limit: int) -> None:
    b = Bench([Tenant("a", pages=(PageQuota(0, 6),)), Tenant("b")], pages=12)
    b.submit(1, range(40), 5)
    number = b.submit(0, range(50, 50 + prompt), limit)
    b.until_idle()
    assert len(b.generated[number, 0]) == limit


def test_rate_limit_delays_and_reports_until_when() -> None:
    b = Bench([Tenant("a", prefill=(10, 20))])
    first, second = b.submit(0, [1] * 20, 1), b.submit(0, [2] * 20, 1)
    b.step(2)
    assert (first, 0) in b.ended
    b.submit(0, [3] * 4, 1)
    b.step()
    due = b.s.find_next_event()
    assert due is not None and b.now < due < b.now + 3 * SECOND
    assert (second, 0) not in b.ended or b.s.usage(0).waiting == 1
    b.step(4, ms=3000)
    assert not b.s.live


# --- failures


def test_request_that_hangs_the_device_fails_alone() -> None:
    b = Bench([Tenant("a")])
    good = [b.submit(0, [index] * 5, 12) for index in range(2)]
    b.step(2)
    bad = b.submit(0, [7] * 5, 12)
    b.runner.poisoned.add(bad)
    b.until_idle()
    assert b.ended[bad, 0] == "device_hang"
    for number in good:
        assert b.generated[number, 0] == [drawn_token(3, 0, 5 + index) for index in range(12)]
    assert b.s.counts.failed_steps == 3


def test_lost_device_fails_every_request_with_reason() -> None:
    b = Bench([Tenant("a")])
    numbers = [b.submit(0, [index] * 5, 12) for index in range(6)]
    b.step(2)
    b.runner.fails, b.runner.reopens = 1, False
    with pytest.raises(Exception, match="did not finish"):
        b.step()
    b.step()
    assert b.ended == {(number, 0): "device_lost" for number in numbers}


def test_plan_arrays_put_decodes_first_and_include_sampled_rows() -> None:
    b = Bench([Tenant("a")])
    b.submit(0, range(5), 9)
    b.step(2)
    b.submit(0, range(50, 56), 9)
    b.s.receive()
    plan = b.s.schedule()
    assert (plan.tokens, plan.sequences, plan.rows, plan.decodes) == (7, 2, 2, 1)
    assert plan.position[:7].tolist() == [6, 0, 1, 2, 3, 4, 5]
    assert plan.sequence[:7].tolist() == [0] + 6 * [1]
    assert plan.token_id[1:7].tolist() == list(range(50, 56))
    assert plan.logit_row[:2].tolist() == [0, 6] and plan.row_position[:2].tolist() == [7, 6]
    assert plan.bound == [int(plan.slot[1])] and np.all(plan.state_source[:2] == -1)


def test_stale_page_reservation_blocks_no_request() -> None:
    """A soak of 2,000 requests stood still: who was evicted came before the one that they were set aside for."""
    bench = Bench([Tenant("a")], slots=2, pages=8)
    first = bench.submit(0, range(1, 9), 16)
    bench.step(6)
    bench.submit(0, range(20, 40), 4)
    bench.step()
    bench.step(ms=11_000)
    assert bench.s.collector is not None and bench.s.collected[0] > 0
    bench.s.evict(bench.s.live[first][0])
    bench.until_idle()
    assert set(bench.ended.values()) == {"length"}
