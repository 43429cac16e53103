"""A scheduler over a runner whose tokens depend on seed and position alone, under any order of events."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fake_masks import FakeMask, ManualPool
from fake_runner import CheckingRunner, HangError, drawn_token
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.checks.drafters import KINDS, DraftKind, ScriptedDrafter
from zinc_rt.sched.checks.invariants import find_violations
from zinc_rt.sched.kv.capsule import Capsule
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.step_cost import StepCost
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.sched.usage.ledger import UsageLedger

PAGE = 4
# three decodes and a little of a prompt exceed the 30 ms of an interactive answer: others take turns
TIGHT = StepCost("a clock", "none", 10_000, prompt_us=1000, decode_us=5000, context_us=0, source="this test")


def only_hangs(error: Exception, plan: StepPlan) -> None:
    """A step that fails because the test requested it, not because the runner detected an error."""
    assert isinstance(error, HangError), repr(error)


class SchedulerMachine(RuleBasedStateMachine):
    """Four slots, few pages, a window group, recurrent rows; an interactive, a standard, a batch and a small
    tenant."""

    groups: ClassVar = (PageGroup("full", 22), PageGroup("window", 22, window=9))
    tenants: ClassVar = (
        Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1, pages=(PageQuota(4), PageQuota(4))),
        Tenant("team", weight=2.0, session_pin_pages=6),
        Tenant("night", Priority.BATCH, slots_max=3, cache_ttl_ns=2_000_000_000),
        Tenant("small", pages=(PageQuota(0, 8), PageQuota(0, 8)), decode=(30, 12), session_pin_pages=3),
    )
    state_rows = 12
    drafts = 0  # draft tokens of a request in a step

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.cache = KvCache(self.groups, PAGE, 8, self.state_rows)
        self.runner = CheckingRunner(self.cache, slots=4, ctx=64)
        limits = SchedulerLimits(
            4, 64, 12, slice_tokens=4, checkpoint_tokens=8, drafts=self.drafts, check_every=0, cost=TIGHT
        )
        ledger = UsageLedger(
            [tenant.name for tenant in self.tenants], {group.name: group.pages for group in self.groups}
        )
        clock = lambda: self.now  # noqa: E731
        self.drafter = ScriptedDrafter(self.find_target, vocab=50)
        self.scheduler = Scheduler(
            limits, self.tenants, self.cache, self.runner, clock, ledger=ledger, vocab=50,
            drafter=self.drafter if self.drafts else None,
        )  # fmt: skip
        self.runner.scheduler = self.scheduler
        self.masks = ManualPool(self.scheduler.fills)
        self.scheduler.failed = only_hangs
        self.spaces = [make_namespace("m", "canonical-1", "f32", PAGE, secret=bytes([n]) * 32) for n in range(4)]
        self.number = 0
        self.generated: dict[tuple[int, int], list[int]] = {}
        self.ended: dict[tuple[int, int], str] = {}
        self.asked: dict[int, tuple[int, int, int, int]] = {}  # prompt, limit, seed, choices
        self.capsules: list[Capsule] = []

    def find_target(self, number: int, choice: int, position: int) -> int:
        return drawn_token(self.asked[number][2], choice, position)

    @rule(
        tenant=st.integers(0, 3),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=18),
        limit=st.integers(1, 14),
        seed=st.integers(0, 3),
        lower=st.booleans(),
        wait_ms=st.sampled_from([None, None, 40, 4000]),
        choices=st.sampled_from([1, 1, 2, 3]),
        session=st.integers(0, 2),
        fill_ms=st.sampled_from([None, None, 0, 10, 60]),
    )
    def submit(
        self,
        tenant: int,
        prompt: list[int],
        limit: int,
        seed: int,
        lower: bool,
        wait_ms: int | None,
        choices: int,
        session: int,
        fill_ms: int | None = None,
    ) -> None:
        """`fill_ms`: how long each fill of its token mask takes, if it has one."""
        self.number += 1
        mask = None if fill_ms is None else FakeMask(lambda: self.later(fill_ms))
        submission = NewRequest(
            self.number,
            tenant,
            prompt,
            self.spaces[tenant],
            Sampling(limit, seed=seed, n=choices),
            Priority.BATCH if lower else None,
            None if wait_ms is None else self.now + wait_ms * 1_000_000,
            session=session,
            mask=mask,
        )
        try:
            self.scheduler.submit(submission)
        except UsageError:
            maximum = self.scheduler.tenants[tenant].slots_max or 4
            room = min(pool.pool.count for pool in self.cache.pools) * PAGE - 12 * 3 * PAGE
            assert choices > maximum or len(prompt) + limit > min(room, 8 * PAGE - PAGE)
            return
        self.asked[self.number] = (len(prompt), limit, seed, choices)
        for choice in range(choices):
            self.generated[self.number, choice] = []

    def later(self, ms: int) -> None:
        self.now += ms * 1_000_000

    @rule(held=st.booleans(), count=st.integers(0, 3))
    def fill_masks(self, held: bool, count: int) -> None:
        """Make masks late from now on, or not; fill some of the late ones."""
        self.masks.held = held
        self.masks.release(count if held else 1 << 30)

    @rule(steps=st.integers(1, 5), ms=st.sampled_from([1, 10, 500, 30_000]))
    def run(self, steps: int, ms: int) -> None:
        for _ in range(steps):
            self.one_step(ms)

    def one_step(self, ms: int) -> bool:
        self.now += ms * 1_000_000
        batch = self.scheduler.step()
        if batch is None:
            return False
        rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
        for number, choice, token in rows:
            assert (number, choice) not in self.ended
            prompt, _, seed, _ = self.asked[number]
            result = self.generated[number, choice]
            assert token == drawn_token(seed, choice, prompt + len(result))
            result.append(token)
        for number, choice, reason in batch.ended:
            assert (number, choice) not in self.ended
            self.ended[number, choice] = reason
            assert reason != "length" or len(self.generated[number, choice]) == self.asked[number][1]
        return True

    @rule(back=st.integers(1, 6))
    def cancel(self, back: int) -> None:
        self.scheduler.cancel(self.number - back)

    @rule(back=st.integers(1, 6), held=st.booleans())
    def hold(self, back: int, held: bool) -> None:
        self.scheduler.hold(self.number - back, held)

    @rule(back=st.integers(1, 6), resumed=st.booleans())
    def hold_after_planning(self, back: int, resumed: bool) -> None:
        """A reader stalls after the next step is planned, and may continue before the step ends."""
        number, schedule = self.number - back, self.scheduler.schedule

        def schedule_and_hold() -> StepPlan:
            plan = schedule()
            self.scheduler.hold(number)
            return plan

        self.scheduler.schedule = schedule_and_hold  # type: ignore[method-assign]
        try:
            self.one_step(10)
        finally:
            self.scheduler.schedule = schedule  # type: ignore[method-assign]
        if resumed:
            self.scheduler.resume(number)

    @precondition(lambda self: any(True for _ in self.scheduler.running()))
    @rule()
    def park(self) -> None:
        self.scheduler.park(next(self.scheduler.running()))

    @precondition(lambda self: any(True for _ in self.scheduler.running()))
    @rule()
    def evict(self) -> None:
        self.scheduler.evict(next(self.scheduler.running()))

    @rule(count=st.integers(1, 2))
    def steps_fail(self, count: int) -> None:
        self.runner.fails = count

    @rule(back=st.integers(0, 4))
    def one_hangs_the_device(self, back: int) -> None:
        self.runner.poisoned.add(self.number - back)

    @rule(back=st.integers(0, 4))
    def one_has_no_logits(self, back: int) -> None:
        self.runner.nan.add(self.number - back)

    @rule(
        tenant=st.integers(0, 3),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        guaranteed=st.integers(0, 3),
        maximum=st.sampled_from([None, 1, 3]),
        reserved=st.integers(0, 12),
        pages=st.sampled_from([None, 9, 16]),
    )
    def configure(
        self, tenant: int, weight: float, guaranteed: int, maximum: int | None, reserved: int, pages: int | None
    ) -> None:
        """Change quotas, including reservations that take memory from all other tenants."""
        before = self.scheduler.tenants
        quota = PageQuota(reserved, None if tenant != 3 and pages is None else max(8, pages or 8))
        changed = replace(
            before[tenant],
            weight=weight,
            slots_guaranteed=guaranteed,
            slots_max=maximum,
            pages=(quota,) * len(self.groups),
        )
        tenants = [*before[:tenant], changed, *before[tenant + 1 :]]
        quotas = [pool.find_quota(index) for pool in self.cache.pools for index in range(4)]
        try:
            future = self.scheduler.configure(tenants)
        except UsageError:
            assert self.scheduler.tenants is before
            return
        self.scheduler.receive()
        if future.exception() is not None:
            assert self.scheduler.tenants == before
            assert [pool.find_quota(index) for pool in self.cache.pools for index in range(4)] == quotas
        else:
            assert self.scheduler.tenants == tenants

    @precondition(lambda self: bool(self.scheduler.live))
    @rule(data=st.data(), count=st.integers(1, 2))
    def fork(self, data: st.DataObject, count: int) -> None:
        """Fork requests from the current position of another, which also continues."""
        self.scheduler.receive()
        alive = [request for request in self.scheduler.requests() if request.generated < request.limit]
        if not alive:
            return
        self.continue_from(data.draw(st.sampled_from(alive)), count)

    def continue_from(self, request: Request, count: int) -> None:
        """Submit `count` requests that continue from a capsule of this one, if it can be taken."""
        capsule = self.scheduler.snapshot(request.number, request.choice)
        if capsule is None:
            return
        self.capsules.append(capsule)
        bound = request.slot >= 0
        tokens = self.scheduler.slots.history[request.slot, : request.length] if bound else request.tokens
        generated = tokens[request.prompt :].tolist()
        for _ in range(count):
            self.number += 1
            sampling = replace(request.sampling, n=1)
            try:
                second = NewRequest(self.number, request.tenant, tokens.copy(), request.within, sampling)
                self.scheduler.submit(
                    replace(second, capsule=capsule, generated=len(generated), choice=request.choice)
                )
            except UsageError:
                return
            self.asked[self.number] = (request.prompt, request.limit, request.seed, 1)
            self.generated[self.number, request.choice] = list(generated)

    @precondition(lambda self: bool(self.capsules))
    @rule()
    def drop_capsule(self) -> None:
        self.scheduler.drop_capsule(self.capsules.pop())

    @rule()
    def drain(self) -> None:
        """Everything ends, whatever came before."""
        self.runner.poisoned.clear()
        self.fill_masks(False, 0)
        while self.capsules:
            self.drop_capsule()
        for number in self.asked:
            self.scheduler.hold(number, False)
        for _ in range(4000):
            self.one_step(100)
            if not self.scheduler.live:
                break
        assert not self.scheduler.live, [(r.number, r.state, r.tenant) for r in self.scheduler.requests()]
        assert self.ended.keys() >= self.generated.keys()
        self.now += 2000 * 1_000_000_000  # no session lives so long
        self.scheduler.step()
        for pool in self.cache.pools:
            assert pool.pool.used == 0
        if self.cache.rows is not None:
            assert self.cache.rows.used == 0

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert not find_violations(self.scheduler)
        for request in self.scheduler.running():
            if isinstance(request.mask, FakeMask) and request not in self.scheduler.late:
                known = self.scheduler.slots.history[request.slot, request.prompt : request.length]
                assert request.mask.tokens == known.tolist(), "a mask has not seen the tokens of its request"

    def teardown(self) -> None:
        self.drain()
        assert not find_violations(self.scheduler)


class PlainSchedulerMachine(SchedulerMachine):
    """One group, no recurrent state."""

    groups: ClassVar = (PageGroup("full", 18),)
    tenants: ClassVar = (
        Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1, pages=(PageQuota(4),)),
        Tenant("team", weight=2.0, session_pin_pages=6),
        Tenant("night", Priority.BATCH, slots_max=3, cache_ttl_ns=2_000_000_000),
        Tenant("small", pages=(PageQuota(0, 8),), decode=(30, 12), session_pin_pages=3),
    )
    state_rows = 0


class DraftingSchedulerMachine(PlainSchedulerMachine):
    """Up to three drafts a request, which change from right to wrong, shifted or malformed ones."""

    groups: ClassVar = (PageGroup("full", 18), PageGroup("window", 18, window=9))
    tenants: ClassVar = SchedulerMachine.tenants
    drafts = 3

    @rule(kind=st.sampled_from(KINDS))
    def change_drafts(self, kind: DraftKind) -> None:
        self.drafter.kind = kind


class RecurrentDraftingSchedulerMachine(DraftingSchedulerMachine):
    """Drafts for a model with recurrent state, whose rows are scarce."""

    state_rows = 12
