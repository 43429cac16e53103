"""Runners that compute nothing: one draws a function of seed, choice and position; one knows besides what every
page and row holds, and reads what a kernel would."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag
from zinc_rt.sched.kv.kv_cache import UNSET, ZERO, KvCache
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.usage.ledger import RunnerCounts


def drawn_token(seed: int, choice: int, position: int) -> int:
    return (seed * 1_000_003 + choice * 104_729 + position * 7919) % 50


def hash_prefixes(root: bytes, tokens: list[int]) -> list[int]:
    """Return a number for each prefix, which represents the cache contents at its end."""
    known, result = hash(root), []
    for token in tokens:
        known = hash((known, token))
        result.append(known)
    return result


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
            raise HangError("the step did not finish")
        ends = np.append(np.flatnonzero(np.diff(plan.sequence[: plan.tokens])), plan.tokens - 1)
        assert not plan.tokens or plan.context == int(plan.position[ends].sum()) + plan.sequences
        self.read_and_write(plan)
        rows = slice(plan.rows)
        who = records[plan.row_slot[rows]]
        tokens = [
            drawn_token(int(record["seed"]), int(record["choice"]), int(position))
            for record, position in zip(who, plan.row_position[rows], strict=True)
        ]
        skipped = who["flags"] & SlotFlag.BACKPRESSURE != 0
        nonfinite = np.array([0 if int(record["request"]) in self.nan else -1 for record in who], np.int32)
        nonfinite[skipped] = -1
        for row in plan.late:
            tokens[row] = -1
        bound = int(np.count_nonzero(records["state"]))
        self.counts = self.counts.after(
            plan.tokens, plan.rows - len(plan.list_undrawn(nonfinite)), bound, 1000 + plan.tokens
        )
        return Drawn(np.where(skipped, -1, tokens).astype(np.int32), nonfinite, None, skipped)

    def read_and_write(self, plan: StepPlan) -> None:
        pass

    def reopen(self) -> bool:
        return self.reopens


class CheckingRunner(FakeRunner):
    """It uses only the page tables and tokens from plans, and no state of the scheduler."""

    def __init__(self, cache: KvCache, slots: int, ctx: int) -> None:
        super().__init__()
        self.cache, self.ctx = cache, ctx
        self.per_slot = -(-ctx // cache.page_tokens)
        self.tables = [np.full(slots * self.per_slot, UNSET) for _ in cache.groups]
        self.held: dict[tuple[int, int, int], int] = {}  # group, page, place: `prefixes` of what is there
        self.states: dict[int, int] = {ZERO: 0}

    def reopen(self) -> bool:
        self.held.clear()
        self.states = {ZERO: 0}
        return self.reopens

    def read_and_write(self, plan: StepPlan) -> None:
        assert self.scheduler is not None
        assert not self.scheduler.check()
        for table, changes in zip(self.tables, plan.table_changes, strict=True):
            for entry, page in changes.items():
                table[entry] = page
        for copy in plan.copies:
            for index in range(copy.tokens):
                self.held[copy.group, copy.target, index] = self.held[copy.group, copy.source, index]
        targets = plan.state_target[: plan.sequences].tolist()
        assert self.cache.rows is None or len(set(targets)) == len(targets)
        spans = [np.flatnonzero(plan.sequence[: plan.tokens] == index) for index in range(plan.sequences)]
        for at, span in enumerate(spans):
            self._check_read(plan, at, span)
        for at, span in enumerate(spans):
            self._record_write(plan, at, span)

    def _read_span_owner(self, plan: StepPlan, span: np.ndarray) -> tuple[int, int, list[int]]:
        """A sequence's slot, its first position in the step, and the numbers of its prefixes."""
        assert self.scheduler is not None
        slot, first = int(plan.slot[span[0]]), int(plan.position[span[0]])
        request = self.scheduler.slots.requests[slot]
        assert request is not None
        last = first + len(span)
        tokens = self.scheduler.slots.history[slot, :last]
        assert (tokens[first:] == plan.token_id[span]).all()
        return slot, first, hash_prefixes(request.within.root, tokens.tolist())

    def _mapped_page(self, group: int, slot: int, index: int) -> int:
        page = int(self.tables[group][slot * self.per_slot + index // self.cache.page_tokens])
        assert page != UNSET
        return page

    def _check_read(self, plan: StepPlan, position: int, span: np.ndarray) -> None:
        slot, first, known = self._read_span_owner(plan, span)
        for group, spec in enumerate(self.cache.groups):
            start = max(0, first - spec.window + 1) if spec.window else 0
            for index in range(start, first):
                key = group, self._mapped_page(group, slot, index), index % self.cache.page_tokens
                assert self.held[key] == known[index]
        if self.cache.rows is not None:
            assert self.states[int(plan.state_source[position])] == (known[first - 1] if first else 0)

    def _record_write(self, plan: StepPlan, position: int, span: np.ndarray) -> None:
        slot, first, known = self._read_span_owner(plan, span)
        for group in range(len(self.cache.groups)):
            for index in range(first, len(known)):
                page = self._mapped_page(group, slot, index)
                assert self.cache.pools[group].pool.is_private(page)
                self.held[group, page, index % self.cache.page_tokens] = known[index]
        if self.cache.rows is not None:
            assert plan.state_target[position] != ZERO
            self.states[int(plan.state_target[position])] = known[-1]
