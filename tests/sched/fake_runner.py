"""Runners that compute nothing: one draws a function of seed, choice and position; one knows besides what every
page and row holds, and reads what a kernel would."""

from __future__ import annotations

import numpy as np

from zinc_rt.sched.kv_cache import UNSET, ZERO, KvCache
from zinc_rt.sched.ledger import RunnerCounts
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.scheduler import Scheduler


def drawn(seed: int, choice: int, position: int) -> int:
    return (seed * 1_000_003 + choice * 104_729 + position * 7919) % 50


class HangError(Exception):
    pass


class FakeRunner:
    """`fails`: how many of the next steps do not come back. `poisoned`: requests in whose steps none does, and
    `nan`: those whose logits are no numbers."""

    def __init__(self) -> None:
        self.counts = RunnerCounts()
        self.scheduler: Scheduler | None = None
        self.fails = 0
        self.reopens = True
        self.poisoned: set[int] = set()
        self.nan: set[int] = set()

    def submit(self, plan: StepPlan) -> StepPlan:
        return plan

    def collect(self, handle: object) -> Drawn:
        plan = handle
        assert isinstance(plan, StepPlan) and self.scheduler is not None
        records = self.scheduler.records
        numbers = records["request"][plan.slot[: plan.tokens]]
        if self.fails or not self.poisoned.isdisjoint(numbers.tolist()):
            self.fails = max(0, self.fails - 1)
            raise HangError("the step did not come back")
        self.read_and_write(plan)
        rows = slice(plan.rows)
        who = records[plan.row_slot[rows]]
        tokens = [
            drawn(int(record["seed"]), int(record["choice"]), int(position))
            for record, position in zip(who, plan.row_position[rows], strict=True)
        ]
        nonfinite = [0 if int(record["request"]) in self.nan else -1 for record in who]
        bound = int(np.count_nonzero(records["state"]))
        self.counts = self.counts.after(plan.tokens, plan.rows, bound, 1000 + plan.tokens)
        return Drawn(np.array(tokens, np.int32), np.array(nonfinite, np.int32))

    def read_and_write(self, plan: StepPlan) -> None:
        pass

    def reopen(self) -> bool:
        return self.reopens


class CheckingRunner(FakeRunner):
    """Its page tables are what plans told it, its tokens what it was given: nothing of the scheduler's own."""

    def __init__(self, cache: KvCache, slots: int, ctx: int) -> None:
        super().__init__()
        self.cache, self.ctx = cache, ctx
        self.per_slot = -(-ctx // cache.page_tokens)
        self.tables = [np.full(slots * self.per_slot, UNSET) for _ in cache.groups]
        self.held: dict[tuple[int, int, int], tuple[bytes, tuple[int, ...]]] = {}
        self.states: dict[int, tuple[bytes, tuple[int, ...]]] = {ZERO: (b"", ())}
        self.tokens: dict[int, list[int]] = {}

    def reopen(self) -> bool:
        self.held.clear()
        self.states = {ZERO: (b"", ())}
        return self.reopens

    def read_and_write(self, plan: StepPlan) -> None:
        assert self.scheduler is not None
        assert not self.scheduler.check()
        for table, changes in zip(self.tables, plan.table_changes, strict=True):
            for entry, page in changes.items():
                table[entry] = page
        for copy in plan.copies:
            for place in range(copy.tokens):
                self.held[copy.group, copy.target, place] = self.held[copy.group, copy.source, place]
        targets = plan.state_target[: plan.sequences].tolist()
        assert self.cache.rows is None or len(set(targets)) == len(targets)
        spans = [np.flatnonzero(plan.sequence[: plan.tokens] == at) for at in range(plan.sequences)]
        for at, span in enumerate(spans):
            self._read(plan, at, span)
        for at, span in enumerate(spans):
            self._write(plan, at, span)

    def _who(self, plan: StepPlan, span: np.ndarray) -> tuple[int, int, bytes, tuple[int, ...]]:
        assert self.scheduler is not None
        slot, first = int(plan.slot[span[0]]), int(plan.position[span[0]])
        request = self.scheduler.slots.requests[slot]
        assert request is not None
        last = first + len(span)
        tokens = self.scheduler.slots.history[slot, :last]
        assert (tokens[first:] == plan.token_id[span]).all()
        return slot, first, request.within.root, tuple(tokens.tolist())

    def _page(self, group: int, slot: int, at: int) -> int:
        page = int(self.tables[group][slot * self.per_slot + at // self.cache.page_tokens])
        assert page != UNSET
        return page

    def _read(self, plan: StepPlan, at: int, span: np.ndarray) -> None:
        slot, first, root, tokens = self._who(plan, span)
        for group, spec in enumerate(self.cache.groups):
            start = max(0, first - spec.window + 1) if spec.window else 0
            for place in range(start, first):
                key = group, self._page(group, slot, place), place % self.cache.page_tokens
                assert self.held[key] == (root, tokens[: place + 1])
        if self.cache.rows is not None:
            want = (root, tokens[:first]) if first else (b"", ())
            assert self.states[int(plan.state_source[at])] == want

    def _write(self, plan: StepPlan, at: int, span: np.ndarray) -> None:
        slot, first, root, tokens = self._who(plan, span)
        for group in range(len(self.cache.groups)):
            for place in range(first, len(tokens)):
                page = self._page(group, slot, place)
                assert self.cache.pools[group].pool.private(page)
                self.held[group, page, place % self.cache.page_tokens] = (root, tokens[: place + 1])
        if self.cache.rows is not None:
            assert plan.state_target[at] != ZERO
            self.states[int(plan.state_target[at])] = (root, tokens)
