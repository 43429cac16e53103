"""The engine: a model file resident on one tier, with steps that the caller selects.

`Engine` serves validate, golden and replay: the caller selects the sequences of each step, and can tap every
node's values and inject others. It plans steps as the scheduler does (`sched/plan.py`), allocates pages with
the same allocator (`sched/kv/`) and runs plans on the same `Runner`. It has no queue and does not generate
text; the loop in `sched/scheduler.py` does.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Literal

import numpy as np

from zinc_rt.backends.base import Backend, device_kind
from zinc_rt.engine.graph_file import GraphFile
from zinc_rt.engine.memory_fit import check_cache_memory, check_context_memory
from zinc_rt.engine.resident import Counts, Variant, parse_capacity
from zinc_rt.engine.runner import LOGITS, Runner, StepOutput
from zinc_rt.engine.variants import DEFAULTS, EngineOptions, ModelGraph, Variants, find_overrides
from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import TokenRole
from zinc_rt.mem.context_bytes import RECURRENT, count_state_row_bytes, groups_of
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.model.builder import STEP_TOKENS, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.pooling import needs_whole_sequences
from zinc_rt.sched.kv.kv_cache import UNSET, ZERO, Holding, KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.plan import StepPlan

DEFAULT_CTX = 4096
OWNER = 0  # the one tenant of an engine's pages

# tap(node, buffer name, array): graph order, the array valid during the call
Tap = Callable[[ir.Node, str, np.ndarray], None]
Prefill = Literal["batched", "stepwise"]
Rows = Literal["all", "last"]


class OutOfPages(ZincError):
    """Raised if the pool has too few free pages for a step."""


@dataclass(eq=False, slots=True)
class Sequence:
    """A sequence: its slot, its pages and its tokens so far."""

    slot: int
    holding: Holding
    told: list[int]  # by page group, how many entries of its table the device knows
    position: int = 0
    tokens: list[int] = field(default_factory=list)


class Engine:
    """Owns the backend, the resident weights, the state and the variants. Use it as a context manager.

    Not thread-safe: one host thread drives it. `ctx` defaults to min(the model's context_length, 4096).
    """

    def __init__(
        self,
        gguf: GGUFFile,
        backend: Backend,
        *,
        ctx: int | None = None,
        slots: int = 1,
        kv_type: str = "f32",
        limits: SequenceLimits | None = None,
        options: EngineOptions = DEFAULTS,
    ) -> None:
        """Load a model. `limits` replaces the limits derived from `ctx`, `slots` and `kv_type`. Raises InputError
        for a model that does not fit, UnsupportedError if the tier lacks kernels for it."""
        self.backend = backend
        if limits is None:
            ctx = choose_default_ctx(gguf, ctx)
            limits = SequenceLimits(ctx, slots, step_tokens=choose_step_tokens(gguf, ctx), kv_type=kv_type)
        self.limits = limits
        slots = self.limits.slots
        self.settings = options.settings
        on_host = device_kind(backend).uses_host_memory
        saved = isinstance(options.store, GraphFile)
        if not saved:
            check_context_memory(gguf, self.limits, overrides=find_overrides(self.settings), state=on_host)
        self.variants = Variants(gguf, backend, self.limits, options)
        self.runner = Runner(self.variants, timeout_seconds=options.timeout_seconds, slow=options.slow)
        self._free_slots = list(range(slots))
        self._open: set[Sequence] = set()
        self.model = self.variants.model("prefill")
        if saved and on_host:
            check_cache_memory(self.model)
        self.variants.check_prefill_ordering()
        self.page_groups = groups_of(self.model.graph)
        self._highest_pages_first = options.highest_pages_first
        self._enter_around = options.around
        self._around = ExitStack()

    @property
    def ordering(self) -> str:
        """Return the name of the ordering, with the type of the cache and the prefill ordering: see
        `name_ordering`."""
        return name_ordering(self.backend.ordering, self.limits.kv_type, self.variants.prefill_ordering)

    def __enter__(self) -> Engine:
        self._around.enter_context(self._enter_around(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._around.__exit__(kind, error, trace)
        finally:
            self.close()

    def close(self) -> None:
        self._around.close()
        self.backend.close()

    def unload(self) -> None:
        """Free all resources of the model; the backend stays open. Raises UsageError while sequences are
        open, InFlight while a step runs."""
        if self._open:
            raise UsageError(
                f"{len(self._open)} sequences are still open", next="release them, then unload the model"
            )
        self.variants.unload()

    @cached_property
    def cache(self) -> KvCache:
        """The page cache for sequences opened here; a scheduler on this engine has its own cache."""
        cache = KvCache(
            make_page_pools(self),
            self.limits.page_tokens,
            self.limits.step_tokens,
            ctx=self.limits.ctx,
            highest_first=self._highest_pages_first,
        )
        for pages in cache.pools:
            pages.set_quota(OWNER, PageQuota())
        return cache

    @cached_property
    def _plan(self) -> StepPlan:
        tokens = self.limits.step_tokens
        return StepPlan(tokens, self.limits.slots, len(self.cache.groups), most_rows=tokens)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Return the open sequences."""
        return tuple(self._open)

    # --- sequences -----------------------------------------------------------------------------------------

    def open(self) -> Sequence:
        """Open an empty sequence in a free slot, with zero recurrent state. Raises UsageError if no slot is
        free."""
        if not self._free_slots:
            raise UsageError(
                f"all {self.limits.slots} slots are in use", next="close a sequence, or use more slots"
            )
        slot = self._free_slots.pop(0)
        # cached keys need nothing: a query sees only its own positions; nor does state that begins at the zero row
        if self.variants.delta_form == "inplace":
            self.variants.resident.zero_row(RECURRENT, slot, self.limits.slots, self.runner.stream)
        sequence = Sequence(slot, self.cache.open(OWNER), [0] * len(self.cache.groups))
        self._open.add(sequence)
        return sequence

    def release(self, sequence: Sequence) -> None:
        """Free the slot and the pages of a sequence. Raises UsageError if it is not open."""
        self._check_open(sequence)
        self._open.remove(sequence)
        self.cache.release(sequence.holding)
        self._free_slots.insert(0, sequence.slot)

    def rewind(self, sequence: Sequence, position: int) -> bool:
        """Drop the tokens of a sequence from `position` on. Return False, without changes, if that is impossible:
        recurrent state has advanced, or pages of a window were freed. Raises UsageError for a released sequence or
        a position outside it.
        """
        self._check_open(sequence)
        if not 0 <= position <= sequence.position:
            raise UsageError(f"position {position} is outside a sequence of {sequence.position} tokens")
        if position == sequence.position:
            return True
        if count_state_row_bytes(self.model.graph):
            return False
        size = self.limits.page_tokens
        for spec, table in zip(self.page_groups, sequence.holding.tables, strict=False):
            first = max(0, position - spec.window + 1) // size if spec.window else 0
            if UNSET in table[first : -(-position // size)]:
                return False
        sequence.position = sequence.holding.computed = position
        del sequence.tokens[position:]
        return True

    def pages(self, sequence: Sequence, group: int = 0) -> list[int]:
        """Return the pages of a sequence in a page group, in order, UNSET for pages outside its window; empty if
        the model does not have the group. Raises UsageError as `release`.
        """
        self._check_open(sequence)
        return list(sequence.holding.tables[group]) if group < len(self.page_groups) else []

    def _check_open(self, sequence: Sequence) -> None:
        if sequence not in self._open:
            raise UsageError(
                f"this sequence was released, so another sequence may be using slot {sequence.slot}",
                next="open a new one",
            )

    # --- running -------------------------------------------------------------------------------------------

    def forward(
        self,
        tokens: abc.Sequence[int],
        *,
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
        prefill: Prefill = "batched",
        rows: Rows = "all",
        role: TokenRole = "decode",
    ) -> np.ndarray:
        """Return the logits f32 [T, V] (rows="last": [1, V]) of `tokens` as a new sequence from position 0.

        `tap` receives every node's results in graph order. `inject` replaces a labelled value, f32 [T, ...],
        before its consumers. `role`: of all tokens; those of a prompt have the prefill ordering, if there is one.
        Raises UsageError for ids outside the vocabulary or more tokens than the context.
        """
        sequence = self.open()
        try:
            return self.extend(sequence, tokens, tap=tap, inject=inject, prefill=prefill, rows=rows, role=role)
        finally:
            self.release(sequence)

    def extend(
        self,
        sequence: Sequence,
        tokens: abc.Sequence[int],
        *,
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
        prefill: Prefill = "batched",
        rows: Rows = "all",
        role: TokenRole = "decode",
        advance: Callable[[int], object] = lambda tokens: None,
    ) -> np.ndarray:
        """Append `tokens` to a sequence, in one pass per capacity or token by token.

        Returns logits like `forward`. `advance` is called after each step with its token count.
        """
        self.check(sequence, tokens)
        if not len(tokens):
            raise UsageError("no tokens to run", next="pass at least one token")
        largest = 1 if prefill == "stepwise" else self.limits.step_tokens
        logits = []
        for start in range(0, len(tokens), largest):
            part = tokens[start : start + largest]
            last = start + largest >= len(tokens)
            wanted = range(len(part)) if rows == "all" else [len(part) - 1] if last else []
            injected = {name: a[start : start + len(part)] for name, a in (inject or {}).items()}
            logits.append(self.step([(sequence, part)], list(wanted), role=role, tap=tap, inject=injected))
            advance(len(part))
        return np.concatenate(logits)

    def step(
        self,
        batch: Iterable[tuple[Sequence, abc.Sequence[int]]],
        rows: abc.Sequence[int],
        *,
        role: TokenRole = "decode",
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Run one replay that advances each sequence by its tokens. Return the logits f32 [len(rows), V] of
        the batch rows `rows`.

        Raises UsageError for input that `check` rejects, a duplicate sequence, too many tokens for a step, a row
        outside the batch, more rows than tokens, or an injected value of the wrong shape.
        """
        output = self.advance(batch, rows, role=role, tap=tap, inject=inject)
        if LOGITS not in output.handle.variant.graph.buffers:
            return np.empty((0, self.model.columns), np.float32)
        return output.logits().copy()

    def advance(
        self,
        batch: Iterable[tuple[Sequence, abc.Sequence[int]]],
        rows: abc.Sequence[int],
        *,
        role: TokenRole = "decode",
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
    ) -> StepOutput:
        """Run one step and return the most likely token of each row. Logits are read back only on request.
        `role`: see `forward`.
        """
        batch = [(sequence, tokens) for sequence, tokens in batch if len(tokens)]
        total = sum(len(tokens) for _, tokens in batch)
        for sequence, tokens in batch:
            self.check(sequence, tokens)
            if sequence.position and self.model.whole_sequences:
                raise UsageError(
                    "the model's attention is not causal, so one step must compute all tokens of a sequence",
                    next=f"use at most {self.limits.step_tokens} tokens, and no token-by-token prefill",
                )
        if not 0 < total <= self.limits.step_tokens:
            raise UsageError(f"a step accepts 1 to {self.limits.step_tokens} tokens, not {total}")
        _check_step(batch, rows, total)
        inject = inject or {}
        planned = self._plan_step(batch, rows)
        block = self.runner.fill(planned, role=role, inject=tuple(inject), tapped=tap is not None)
        for label, value in inject.items():
            block.inject(label, value)
        handle = self.runner.submit(block)
        for sequence, _ in batch:
            sequence.told = [len(table) for table in sequence.holding.tables]
        output = self.runner.collect(handle)
        for sequence, tokens in batch:
            sequence.position += len(tokens)
            sequence.tokens.extend(tokens)
            sequence.holding.computed = sequence.position
            self.cache.slide(sequence.holding)
        if tap is not None:
            _show_values(handle.variant, tap, handle.counts)
        return output

    def check(self, sequence: Sequence, tokens: abc.Sequence[int]) -> None:
        """Check tokens before they are appended. Raises UsageError for a released sequence, ids outside the
        vocabulary or more tokens than fit the context."""
        self._check_open(sequence)
        vocab, ctx = self.model.vocab, self.limits.ctx
        if min(tokens, default=0) < 0 or max(tokens, default=0) >= vocab:
            wrong = next(token for token in tokens if not 0 <= token < vocab)
            raise UsageError(f"token id {wrong} is outside the vocabulary of {vocab}")
        if sequence.position + len(tokens) > ctx:
            raise UsageError(
                f"{sequence.position} + {len(tokens)} tokens do not fit the context of {ctx}",
                next="use a larger --ctx or fewer tokens",
            )

    def _plan_step(self, batch: list[tuple[Sequence, abc.Sequence[int]]], rows: abc.Sequence[int]) -> StepPlan:
        """Plan a step: the caller's sequences in order, with the pages that their tokens need, and the requested
        rows.
        """
        plan = self._plan
        plan.clear(self.runner.steps + 1)
        for changes in plan.table_changes:
            changes.clear()
        for sequence, tokens in batch:
            self._cover(sequence, len(tokens), plan)
            row = sequence.slot + 1
            plan.add_sequence(sequence.slot, tokens, sequence.position, (row if sequence.position else ZERO, row))
        for token in rows:
            plan.add_row(token, int(plan.slot[token]), int(plan.position[token]) + 1)
        return plan

    def _cover(self, sequence: Sequence, tokens: int, plan: StepPlan) -> None:
        """Allocate the pages for that many more tokens, and send them to the device with the step."""
        behind = sequence.position + tokens
        if not self.cache.cover(sequence.holding, behind):
            free = ", ".join(f"{pages.pool.free} of {pages.pool.count}" for pages in self.cache.pools)
            raise OutOfPages(
                f"slot {sequence.slot}: too few pages for {behind} tokens, only {free} are free",
                next="release a sequence, or open the engine with more pages",
            )
        base = sequence.slot * self.limits.pages_per_slot
        for changes, table, known in zip(plan.table_changes, sequence.holding.tables, sequence.told, strict=True):
            changes.update({base + index: table[index] for index in range(known, len(table))})

    def graph(self, stage: ModelGraph, inject: tuple[str, ...] = ()) -> ir.OpGraph:
        """Return the graph of a stage, with the labelled values replaced by host inputs, after `transform`."""
        return self.variants.graph(stage, inject)

    def plan(self, stage: ModelGraph, tokens: int, rows: int = 1) -> MemoryPlan:
        capacity = parse_capacity((tokens, min(self.limits.slots, tokens), rows))
        return plan_memory(self.graph(stage), capacity=capacity)


def name_ordering(ordering: str, kv_type: str, prefill_ordering: str) -> str:
    """Return an ordering's name, with the type of the cache unless it is f32, and the prefill ordering if there
    is one: "canonical-1-kv-f16-prefill-wmma-f16"."""
    cache = "" if kv_type == "f32" else f"-kv-{kv_type}"
    return f"{ordering}{cache}{prefill_ordering and f'-prefill-{prefill_ordering}'}"


def make_page_pools(engine: Engine) -> list[PageGroup]:
    """Return a page pool for each of the model's page groups, as large as the engine's limits allow."""
    limits = engine.limits
    pools = [
        PageGroup(spec.name, limits.group_pages(group, spec.window), spec.window)
        for group, spec in enumerate(engine.page_groups)
    ]
    # a model without attention: pages are only counted, its graph reads no table
    return pools or [PageGroup("none", limits.slots * limits.pages_per_slot)]


def read_trained_ctx(gguf: GGUFFile) -> int:
    """Return the model's training context, or DEFAULT_CTX if the file does not specify it."""
    trained = gguf.metadata.get(f"{gguf.architecture}.context_length")
    return trained if isinstance(trained, int) and trained > 0 else DEFAULT_CTX


def choose_default_ctx(gguf: GGUFFile, ctx: int | None) -> int:
    """Return `ctx` if it is set (0 means the trained length), else min(the trained length, 4096).

    Raises UsageError for a negative length.
    """
    if ctx == 0:
        return read_trained_ctx(gguf)
    if ctx is None:
        return min(read_trained_ctx(gguf), DEFAULT_CTX)
    if ctx < 1:
        raise UsageError(f"--ctx {ctx}: expected 0 (the trained length) to {read_trained_ctx(gguf)} tokens")
    return ctx


def choose_step_tokens(gguf: GGUFFile, ctx: int) -> int:
    """Return the most tokens of a step: the whole context if a step must compute whole sequences."""
    return max(STEP_TOKENS, ctx) if needs_whole_sequences(gguf) else STEP_TOKENS


def format_ctx_warning(gguf: GGUFFile, ctx: int | None) -> str:
    """Return the warning for a context longer than the training context, or ""."""
    trained = read_trained_ctx(gguf)
    if ctx is None or ctx <= trained:
        return ""
    return f"--ctx {ctx} exceeds the training context of {trained} tokens: text quality may degrade beyond it"


def _check_step(batch: list[tuple[Sequence, abc.Sequence[int]]], rows: abc.Sequence[int], total: int) -> None:
    if len({sequence for sequence, _ in batch}) < len(batch):
        raise UsageError("a sequence occurs twice in one step", next="pass all its tokens at once")
    wrong = [row for row in rows if not 0 <= row < total]
    if wrong:
        raise UsageError(f"logits of row {wrong[0]} were requested, but the step has {total} tokens")
    if len(rows) > total:
        raise UsageError(f"{len(rows)} rows of logits were requested, but the step has {total} tokens")


def _show_values(variant: Variant, tap: Tap, counts: Counts) -> None:
    for node in variant.made_of.nodes:
        for name in node.outputs:
            if variant.graph.buffers[name].role in ("activation", "output"):
                tap(node, name, variant.read(name, counts))
