"""The engine: a model file made resident on one tier, and the steps that advance its sequences.

The host writes one small step block (tokens, positions, slots, counts), replays the variant whose capacity fits,
and reads logits. Nothing about a token is baked into a variant, so each is built once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

import numpy as np

from zinc_rt.backends.base import Backend
from zinc_rt.errors import UsageError
from zinc_rt.exec import Observer, Stream
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import Stage
from zinc_rt.ir.rewrite import injected_name
from zinc_rt.mem.paged_kv import PagedKV
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.model.emitter import DeltaForm, Limits, Overrides
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.resident import Counts, Variant
from zinc_rt.settings import Settings
from zinc_rt.variants import Transform, Variants

CAPACITIES = (1, 16, 128, 512)  # tokens a variant holds; the actual count is data
DEFAULT_CTX = 4096
STEP_TIMEOUT_SECONDS = 3600.0
LOGITS = "request[slot].logits"
RECURRENT = "state.ssm_"  # state that carries over from token to token, a row a slot

# tap(node, buffer name, array): graph order, the array valid during the call
Tap = Callable[[ir.Node, str, np.ndarray], None]
Prefill = Literal["batched", "stepwise"]
Rows = Literal["all", "last"]

# What a caller wants around every engine opened in its context, whoever opens it: a recorder, say.
around_engines: ContextVar[Callable[[Engine], AbstractContextManager[object]] | None] = ContextVar(
    "around_engines", default=None
)


@dataclass(eq=False, slots=True)
class Request:
    """One request's place: its slot and how many tokens it has seen."""

    slot: int
    position: int = 0
    tokens: list[int] = field(default_factory=list)


class Engine:
    """Owns the backend, the resident weights, the state and the variants. Use as a context manager.

    Not thread-safe: one host thread drives it. `ctx` defaults to min(the model's context_length, 4096).
    """

    def __init__(
        self,
        gguf: GGUFFile,
        backend: Backend,
        *,
        ctx: int | None = None,
        slots: int = 1,
        delta_form: DeltaForm = "ids",
        observer: Observer | None = None,
        transform: Transform | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`transform` may replace each stage's graph before it is lowered, to run a part of the model."""
        self.backend = backend
        self.limits = Limits(ctx=default_ctx(gguf, ctx), slots=slots)
        self.settings = settings or Settings()
        self.variants = Variants(
            gguf,
            backend,
            self.limits,
            delta_form=delta_form,
            overrides=overrides_of(self.settings),
            observer=observer,
            transform=transform,
        )
        self._stream = Stream("main")
        self._free_slots = list(range(slots))
        self._open: set[Request] = set()
        pages = slots * self.limits.pages_per_slot
        self._kv = PagedKV(
            pages, slots=slots, pages_per_slot=self.limits.pages_per_slot, page_tokens=self.limits.page_tokens
        )
        self.model = self.variants.model("prefill")
        self._around = ExitStack()

    def __enter__(self) -> Engine:
        around = around_engines.get()
        if around is not None:
            self._around.enter_context(around(self))
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

    @property
    def sequences(self) -> tuple[Request, ...]:
        """Those that are open."""
        return tuple(self._open)

    # --- sequences -----------------------------------------------------------------------------------------

    def open(self) -> Request:
        """A fresh sequence in a free slot, its recurrent state zero. Raises UsageError when all are taken."""
        if not self._free_slots:
            raise UsageError(
                f"all {self.limits.slots} slots are taken", next="close a sequence, or use more slots"
            )
        slot = self._free_slots.pop(0)
        self._zero_slot(slot)
        sequence = Request(slot)
        self._open.add(sequence)
        return sequence

    def release(self, sequence: Request) -> None:
        """Give the slot and its pages back. Raises UsageError for a sequence that is not open."""
        self._check_open(sequence)
        self._open.remove(sequence)
        self._kv.release(sequence.slot)
        self._free_slots.insert(0, sequence.slot)

    def _check_open(self, sequence: Request) -> None:
        if sequence not in self._open:
            raise UsageError(
                f"this sequence was released: slot {sequence.slot} may be another's by now", next="open a new one"
            )

    def _zero_slot(self, slot: int) -> None:
        """Recurrent state starts at zero. Cached keys need nothing: a query sees only its own positions."""
        variant = self.variants.any()
        if variant is None:  # nothing has run yet, and fresh memory is zero
            return
        for spec in variant.graph.by_role("state"):
            if spec.shape[0] == self.limits.slots and spec.name.startswith(RECURRENT):
                per_slot = variant.program.plan.placements[spec.name].size_bytes // self.limits.slots
                variant.write(spec.name, bytes(per_slot), offset_bytes=slot * per_slot)

    # --- running -------------------------------------------------------------------------------------------

    def forward(
        self,
        tokens: Sequence[int],
        *,
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
        prefill: Prefill = "batched",
        rows: Rows = "all",
    ) -> np.ndarray:
        """Logits f32 [T, V] (rows="last": [1, V]) of `tokens` as a sequence of its own, from position 0.

        `tap` sees every node's results in graph order. `inject` replaces a labelled value, f32 [T, ...], before
        its consumers. Raises UsageError for ids outside the vocabulary or more tokens than the context holds.
        """
        sequence = self.open()
        try:
            return self.extend(sequence, tokens, tap=tap, inject=inject, prefill=prefill, rows=rows)
        finally:
            self.release(sequence)

    def extend(
        self,
        sequence: Request,
        tokens: Sequence[int],
        *,
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
        prefill: Prefill = "batched",
        rows: Rows = "all",
    ) -> np.ndarray:
        """Append `tokens` at the sequence's position, in one pass per capacity or token by token."""
        self.check(sequence, tokens)
        if not len(tokens):
            raise UsageError("no tokens to run", next="give at least one")
        largest = 1 if prefill == "stepwise" else CAPACITIES[-1]
        logits = []
        for start in range(0, len(tokens), largest):
            part = tokens[start : start + largest]
            last = start + largest >= len(tokens)
            wanted = range(len(part)) if rows == "all" else [len(part) - 1] if last else []
            injected = {name: a[start : start + len(part)] for name, a in (inject or {}).items()}
            logits.append(self.step([(sequence, part)], list(wanted), tap=tap, inject=injected))
        return np.concatenate(logits)

    def step(
        self,
        batch: Iterable[tuple[Request, Sequence[int]]],
        rows: Sequence[int],
        *,
        tap: Tap | None = None,
        inject: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """One replay: each sequence advances by its tokens; logits f32 [len(rows), V] of the batch rows `rows`.

        Raises UsageError for what `check` refuses, a sequence named twice, more tokens than a step takes, a row
        the batch has not, more rows than tokens, or an injected value of another shape.
        """
        batch = [(sequence, tokens) for sequence, tokens in batch if len(tokens)]
        total = sum(len(tokens) for _, tokens in batch)
        for sequence, tokens in batch:
            self.check(sequence, tokens)
        fits = [size for size in CAPACITIES if size >= total]
        if not total or not fits:
            raise UsageError(f"a step takes 1 to {CAPACITIES[-1]} tokens, not {total}")
        _check_step(batch, rows, total)
        capacity = {
            "tokens": fits[0],
            "sequences": min(self.limits.slots, fits[0]),
            "rows": _room(len(rows), fits[0]),
        }
        counts = (total, len(batch), len(rows))
        variant = self.variants.get(
            "decode" if fits[0] == 1 else "prefill", capacity, inject=tuple(inject or ()), tapped=tap is not None
        )
        for label, value in (inject or {}).items():
            wanted = variant.shape(injected_name(label), counts)
            if np.shape(value) != wanted:
                raise UsageError(f"the value to inject for {label} has shape {np.shape(value)}, wanted {wanted}")
        for sequence, tokens in batch:
            self._kv.ensure(sequence.slot, sequence.position + len(tokens))
        self._write_step(variant, batch, rows, inject or {})
        variant.replays.replay(variant.key, self._stream)
        variant.replays.wait(STEP_TIMEOUT_SECONDS)
        for sequence, tokens in batch:
            sequence.position += len(tokens)
            sequence.tokens.extend(tokens)
        if tap is not None:
            _tell(variant, tap, counts)
        if LOGITS not in variant.graph.buffers:
            return np.empty((0, self.model.vocab), np.float32)
        return variant.read(LOGITS, counts).copy()

    def check(self, sequence: Request, tokens: Sequence[int]) -> None:
        """Raises UsageError for a released sequence, ids outside the vocabulary or more tokens than the context
        still holds."""
        self._check_open(sequence)
        vocab, ctx = self.model.vocab, self.limits.ctx
        wrong = [token for token in tokens if not 0 <= token < vocab]
        if wrong:
            raise UsageError(f"token id {wrong[0]} is outside the vocabulary of {vocab}")
        if sequence.position + len(tokens) > ctx:
            raise UsageError(
                f"{sequence.position} + {len(tokens)} tokens do not fit the context of {ctx}",
                next="give a larger --ctx, or fewer tokens",
            )

    def _write_step(
        self,
        variant: Variant,
        batch: list[tuple[Request, Sequence[int]]],
        rows: Sequence[int],
        inject: Mapping[str, np.ndarray],
    ) -> None:
        lengths = [len(tokens) for _, tokens in batch]
        slots = [sequence.slot for sequence, _ in batch]
        values: dict[str, np.ndarray] = {
            "step.counts": np.array([sum(lengths), len(batch), len(rows)], np.int32),
            "request[slot].token_id": np.concatenate([np.asarray(tokens, np.int32) for _, tokens in batch]),
            "request[slot].position": np.concatenate(
                [np.arange(s.position, s.position + len(tokens), dtype=np.int32) for s, tokens in batch]
            ),
            "request[slot].slot": np.repeat(np.array(slots, np.int32), lengths),
            "request[slot].sequence": np.repeat(np.arange(len(batch), dtype=np.int32), lengths),
            "request[slot].state_source": np.array(slots, np.int32),
            "request[slot].state_target": np.array(slots, np.int32),
            "request[slot].logit_row": np.asarray(rows, np.int32),
            "state.page_table": self._kv.table,
        }
        for label, value in inject.items():
            values[injected_name(label)] = np.ascontiguousarray(value, np.float32)
        for spec in variant.graph.by_role("step"):
            if values[spec.name].size:
                variant.write(spec.name, values[spec.name])

    def graph(self, stage: Stage, inject: tuple[str, ...] = ()) -> ir.Graph:
        """The graph a stage runs: with the labelled values fed from the host, then after `transform`."""
        return self.variants.graph(stage, inject)

    def plan(self, stage: Stage, tokens: int, rows: int = 1) -> MemoryPlan:
        capacity = {"tokens": tokens, "sequences": min(self.limits.slots, tokens), "rows": rows}
        return plan_memory(self.graph(stage), capacity=capacity)


def overrides_of(settings: Settings) -> Overrides:
    """What of the settings departs from the file."""
    return Overrides(
        lm_head_rows=settings.lm_head_rows,
        decode_topk=settings.decode_topk,
        gemma4_attn_scale=settings.gemma4_attn_scale,
    )


def default_ctx(gguf: GGUFFile, ctx: int | None) -> int:
    """`ctx` if given, else min(the model's context_length, 4096). Raises UsageError outside 1..context_length."""
    trained = gguf.metadata.get(f"{gguf.architecture}.context_length")
    longest = trained if isinstance(trained, int) and trained > 0 else DEFAULT_CTX
    if ctx is None:
        return min(longest, DEFAULT_CTX)
    if not 0 < ctx <= longest:
        raise UsageError(f"--ctx {ctx}: this model's context is 1 to {longest} tokens")
    return ctx


def _check_step(batch: list[tuple[Request, Sequence[int]]], rows: Sequence[int], total: int) -> None:
    if len({sequence for sequence, _ in batch}) < len(batch):
        raise UsageError("a sequence is named twice in one step", next="join its tokens")
    wrong = [row for row in rows if not 0 <= row < total]
    if wrong:
        raise UsageError(f"logits of row {wrong[0]} were asked for, the step has {total} tokens")
    if len(rows) > total:
        raise UsageError(f"{len(rows)} rows of logits were asked for, the step has {total} tokens")


def _tell(variant: Variant, tap: Tap, counts: Counts) -> None:
    for call in variant.program.calls:
        for name in call.node.outputs:
            if variant.graph.buffers[name].role in ("activation", "output"):
                tap(call.node, name, variant.read(name, counts))


def _room(rows: int, tokens: int) -> int:
    return 1 if rows <= 1 else tokens
