"""A scheduler over a runner whose tokens depend on seed and position alone, under any order of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zinc_rt.errors import UsageError
from zinc_rt.sched.invariants import plans_are_consecutive, violations
from zinc_rt.sched.kv_cache import UNSET, ZERO, KvCache, PageGroup
from zinc_rt.sched.pages import PageQuota
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.prefix import namespace
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Priority, Tenant

PAGE = 4


def drawn(seed: int, position: int) -> int:
    return (seed * 1_000_003 + position * 7919) % 50


class CheckingRunner:
    """Draws `drawn`; knows what each page and row holds, and reads what a kernel would."""

    def __init__(self, cache: KvCache) -> None:
        self.cache = cache
        self.held: dict[tuple[int, int, int], tuple[bytes, tuple[int, ...]]] = {}
        self.states: dict[int, tuple[bytes, tuple[int, ...]]] = {ZERO: (b"", ())}
        self.scheduler: Scheduler | None = None
        self.steps = 0

    def run(self, plan: StepPlan) -> Sequence[int]:
        assert self.scheduler is not None
        assert not list(plans_are_consecutive(self.scheduler, plan))
        written = [piece.target for piece in plan.pieces if piece.target >= 0]
        assert len(set(written)) == len(written)
        self.steps += 1
        for piece in plan.pieces:
            holding, tokens = piece.request.holding, piece.request.tokens
            assert holding is not None
            root = holding.within.root
            for group, table in enumerate(holding.tables):
                window = self.cache.groups[group].window
                first = max(0, piece.first - window + 1) if window else 0
                for at in range(first, piece.first):
                    page = table[at // PAGE]
                    assert page != UNSET
                    assert self.held[group, page, at % PAGE] == (root, tuple(tokens[: at + 1]))
            if piece.source >= 0:
                assert self.states[piece.source] == (
                    (root, tuple(tokens[: piece.first])) if piece.first else (b"", ())
                )
        for piece in plan.pieces:
            holding, tokens = piece.request.holding, piece.request.tokens
            assert holding is not None
            root = holding.within.root
            for group, table in enumerate(holding.tables):
                for at in range(piece.first, piece.last):
                    assert self.cache.pools[group].pool.private(table[at // PAGE])
                    self.held[group, table[at // PAGE], at % PAGE] = (root, tuple(tokens[: at + 1]))
            if piece.target >= 0:
                self.states[piece.target] = (root, tuple(tokens[: piece.last]))
        return [drawn(piece.request.seed, piece.last) for piece in plan.pieces if piece.draws]


class SchedulerMachine(RuleBasedStateMachine):
    """Four slots, few pages, a window group, recurrent rows; an interactive, a standard, a batch and a small
    tenant."""

    groups: ClassVar = (PageGroup("full", 22), PageGroup("window", 22, window=9))
    tenants: ClassVar = (
        Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1, pages=(PageQuota(4), PageQuota(4))),
        Tenant("team", weight=2.0),
        Tenant("night", Priority.BATCH, slots_max=3),
        Tenant("small", pages=(PageQuota(0, 8), PageQuota(0, 8)), decode=(30, 12)),
    )
    state_rows = 12

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.cache = KvCache(self.groups, PAGE, 8, self.state_rows)
        self.runner = CheckingRunner(self.cache)
        limits = SchedulerLimits(slots=4, ctx=64, step_tokens=12, interactive_step_tokens=8, slice_tokens=4)
        self.scheduler = Scheduler(limits, self.tenants, self.cache, self.runner, lambda: self.now)
        self.runner.scheduler = self.scheduler
        self.spaces = [namespace("m", "canonical-1", "f32", PAGE, secret=bytes([n]) * 32) for n in range(4)]
        self.number = 0
        self.made: dict[int, list[int]] = {}
        self.ended: dict[int, str] = {}
        self.asked: dict[int, tuple[int, int, int]] = {}  # prompt, limit, seed

    @rule(
        tenant=st.integers(0, 3),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=18),
        limit=st.integers(1, 14),
        seed=st.integers(0, 3),
        lower=st.booleans(),
        wait_ms=st.sampled_from([None, None, 40, 4000]),
    )
    def submit(
        self, tenant: int, prompt: list[int], limit: int, seed: int, lower: bool, wait_ms: int | None
    ) -> None:
        self.number += 1
        submission = NewRequest(
            self.number, tenant, prompt, limit, self.spaces[tenant], Priority.BATCH if lower else None, seed,
            None if wait_ms is None else self.now + wait_ms * 1_000_000,
        )  # fmt: skip
        try:
            self.scheduler.submit(submission)
        except UsageError:
            assert tenant == 3 and len(prompt) + limit > 8 * PAGE - PAGE
            return
        self.made[self.number] = []
        self.asked[self.number] = (len(prompt), limit, seed)

    @rule(steps=st.integers(1, 5), ms=st.sampled_from([1, 10, 500, 30_000]))
    def run(self, steps: int, ms: int) -> None:
        for _ in range(steps):
            self.one_step(ms)

    def one_step(self, ms: int) -> bool:
        self.now += ms * 1_000_000
        batch = self.scheduler.step()
        if batch is None:
            return False
        for number, token in batch.made:
            assert number not in self.ended
            prompt, _, seed = self.asked[number]
            assert token == drawn(seed, prompt + len(self.made[number]))
            self.made[number].append(token)
        for number, reason in batch.ended:
            assert number not in self.ended
            self.ended[number] = reason
            assert reason != "length" or len(self.made[number]) == self.asked[number][1]
        return True

    @rule(back=st.integers(1, 6))
    def cancel(self, back: int) -> None:
        self.scheduler.cancel(self.number - back)

    @rule(back=st.integers(1, 6), held=st.booleans())
    def hold(self, back: int, held: bool) -> None:
        self.scheduler.hold(self.number - back, held)

    @precondition(lambda self: any(True for _ in self.scheduler.running()))
    @rule()
    def park(self) -> None:
        self.scheduler.park(next(self.scheduler.running()))

    @precondition(lambda self: any(True for _ in self.scheduler.running()))
    @rule()
    def evict(self) -> None:
        self.scheduler.evict(next(self.scheduler.running()))

    @rule()
    def drain(self) -> None:
        """Everything ends, whatever came before."""
        for number in self.asked:
            self.scheduler.hold(number, False)
        for _ in range(4000):
            self.one_step(100)
            if not self.scheduler.live:
                break
        assert not self.scheduler.live, [(r.number, r.state, r.tenant) for r in self.scheduler.live.values()]
        assert self.ended.keys() >= self.asked.keys()
        for pool in self.cache.pools:
            assert pool.pool.used == 0
        if self.cache.rows is not None:
            assert self.cache.rows.used == 0

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert not violations(self.scheduler)

    def teardown(self) -> None:
        self.drain()
        assert not violations(self.scheduler)


class PlainSchedulerMachine(SchedulerMachine):
    """One group, no recurrent state."""

    groups: ClassVar = (PageGroup("full", 18),)
    tenants: ClassVar = (
        Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1, pages=(PageQuota(4),)),
        Tenant("team", weight=2.0),
        Tenant("night", Priority.BATCH, slots_max=3),
        Tenant("small", pages=(PageQuota(0, 8),), decode=(30, 12)),
    )
    state_rows = 0
