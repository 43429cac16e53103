"""The engine: a model file made resident on one tier, and the steps that advance its sequences.

The host writes one small step block (tokens, positions, slots, counts), replays the variant whose capacity fits,
and reads logits. Nothing about a token is baked into a variant, so each is built once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.exec import Buffer, Graph, Observer, Stream
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import SYMBOLS, Stage
from zinc_rt.ir.rewrite import inject as inject_labels
from zinc_rt.ir.rewrite import injected_name
from zinc_rt.ir.verify import verify
from zinc_rt.lower import Program, lower
from zinc_rt.mem.paged_kv import PagedKV
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.model.emitter import DeltaForm, Limits, Model, Overrides
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model
from zinc_rt.ring.base import Backend
from zinc_rt.settings import Settings

CAPACITIES = (1, 16, 128, 512)  # tokens a variant holds; the actual count is data
DEFAULT_CTX = 4096
STEP_TIMEOUT_SECONDS = 3600.0
RECURRENT = "state.ssm_"  # state that carries over from token to token, a row a slot

# tap(node, buffer name, array): graph order, the array valid during the call
Tap = Callable[[ir.Node, str, np.ndarray], None]
Prefill = Literal["batched", "stepwise"]
Rows = Literal["all", "last"]


@dataclass(eq=False, slots=True)
class Request:
    """One request's place: its slot and how many tokens it has seen."""

    slot: int
    position: int = 0
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Built:
    """One variant with what the host touches of it."""

    graph: Graph
    key: tuple[int, ...]
    program: Program
    buffers: dict[str, Buffer]


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
        transform: Callable[[ir.Graph], ir.Graph] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`transform` may replace each stage's graph before it is lowered, to run a part of the model."""
        self.backend = backend
        self.limits = Limits(ctx=default_ctx(gguf, ctx), slots=slots)
        self._gguf = gguf
        self._delta_form: DeltaForm = delta_form
        self._observer = observer
        self._transform = transform
        self.settings = settings or Settings()
        self._models: dict[Stage, Model] = {}
        self._weights: dict[str, Buffer] = {}
        self._shared: dict[str, Buffer] = {}  # state allocations, the same for every variant
        self._built: dict[tuple[Stage, tuple[str, ...], bool], dict[tuple[int, ...], _Built]] = {}
        self._stream = Stream("main")
        self._free_slots = list(range(slots))
        self._open: set[Request] = set()
        pages = slots * self.limits.pages_per_slot
        self._kv = PagedKV(
            pages, slots=slots, pages_per_slot=self.limits.pages_per_slot, page_tokens=self.limits.page_tokens
        )
        self.model = self._model("prefill")

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.backend.close()

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
        built = next((built for table in self._built.values() for built in table.values()), None)
        if built is None:  # nothing has run yet, and fresh memory is zero
            return
        for spec in built.program.graph.by_role("state"):
            if spec.shape[0] == self.limits.slots and spec.name.startswith(RECURRENT):
                place = built.program.plan.placements[spec.name]
                per_slot = place.size_bytes // self.limits.slots
                start = place.offset_bytes + slot * per_slot
                built.graph.write(_port(place.allocation, built.key), start, bytes(per_slot))

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
        built = self._variant(
            "decode" if fits[0] == 1 else "prefill", capacity, tuple(inject or ()), tap is not None
        )
        for label, value in (inject or {}).items():
            wanted = _now(built.program.graph.buffers[injected_name(label)], (total, len(batch), len(rows)))
            if np.shape(value) != wanted:
                raise UsageError(f"the value to inject for {label} has shape {np.shape(value)}, wanted {wanted}")
        for sequence, tokens in batch:
            self._kv.ensure(sequence.slot, sequence.position + len(tokens))
        self._write_step(built, batch, rows, inject or {})
        built.graph.replay(built.key, self._stream)
        built.graph.wait(STEP_TIMEOUT_SECONDS)
        for sequence, tokens in batch:
            sequence.position += len(tokens)
            sequence.tokens.extend(tokens)
        if tap is not None:
            self._tell(built, tap, total, len(batch), len(rows))
        logits = built.program.graph.buffers.get("request[slot].logits")
        if logits is None:
            return np.empty((0, self.model.vocab), np.float32)
        return self._read(built, logits.name, (total, len(batch), len(rows))).copy()

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
        built: _Built,
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
        for spec in built.program.graph.by_role("step"):
            place = built.program.plan.placements[spec.name]
            if values[spec.name].size:
                built.graph.write(_port(place.allocation, built.key), place.offset_bytes, values[spec.name])

    def _tell(self, built: _Built, tap: Tap, tokens: int, sequences: int, rows: int) -> None:
        for call in built.program.calls:
            for name in call.node.outputs:
                if built.program.graph.buffers[name].role in ("activation", "output"):
                    tap(call.node, name, self._read(built, name, (tokens, sequences, rows)))

    def _read(self, built: _Built, name: str, counts: tuple[int, int, int]) -> np.ndarray:
        spec = built.program.graph.buffers[name]
        place = built.program.plan.placements[name]
        view = built.graph.view(_port(place.allocation, built.key))
        capacity = built.program.plan.capacity
        shape = tuple(capacity[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        array = np.frombuffer(
            view, np.int32 if spec.dtype == "i32" else np.float32, int(np.prod(shape)), place.offset_bytes
        ).reshape(shape)
        return array[: counts[SYMBOLS.index(spec.shape[0])]] if isinstance(spec.shape[0], str) else array

    # --- building ------------------------------------------------------------------------------------------

    def _model(self, stage: Stage) -> Model:
        if stage not in self._models:
            self._models[stage] = build_model(
                self._gguf,
                self.limits,
                stage,
                delta_form=self._delta_form,
                overrides=Overrides(
                    lm_head_rows=self.settings.lm_head_rows,
                    decode_topk=self.settings.decode_topk,
                    gemma4_attn_scale=self.settings.gemma4_attn_scale,
                ),
            )
        return self._models[stage]

    def graph(self, stage: Stage, inject: tuple[str, ...] = ()) -> ir.Graph:
        """The graph a stage runs: with the labelled values fed from the host, then after `transform`."""
        graph = self._model(stage).graph
        if inject:
            graph = inject_labels(graph, inject)
        return graph if self._transform is None else self._transform(graph)

    def plan(self, stage: Stage, tokens: int, rows: int = 1) -> MemoryPlan:
        capacity = {"tokens": tokens, "sequences": min(self.limits.slots, tokens), "rows": rows}
        return plan_memory(self.graph(stage), capacity=capacity)

    def _variant(self, stage: Stage, capacity: dict[str, int], inject: tuple[str, ...], tapped: bool) -> _Built:
        table = self._built.setdefault((stage, inject, tapped), {})
        key = tuple(capacity[symbol] for symbol in SYMBOLS)
        if key not in table:
            table[key] = self._build(stage, capacity, key, inject, tapped, table)
        return table[key]

    def _build(
        self,
        stage: Stage,
        capacity: dict[str, int],
        key: tuple[int, ...],
        inject: tuple[str, ...],
        tapped: bool,
        table: dict[tuple[int, ...], _Built],
    ) -> _Built:
        model = self._model(stage)
        graph = self.graph(stage, inject)
        if inject or self._transform is not None:
            verify(graph)
        plan = plan_memory(graph, capacity=capacity, tap=tapped)
        program = lower(
            graph,
            self.backend.entries(),
            plan,
            ordering=self.backend.ordering,
            tier=self.backend.tier.value,
        )
        if not self._weights:
            self._weights = self.backend.upload(model.weights, model.constants)
        buffers = dict(self._weights)
        for name, allocation in plan.allocations.items():
            role = name.partition("/")[0]
            if role in ("weight", "constant"):
                continue
            if role == "state":
                if name not in self._shared:
                    self._shared[name] = self.backend.alloc_bo(allocation.size_bytes, allocation.heap, name)
                buffers[name] = self._shared[name]
            else:
                buffers[name] = self.backend.alloc_bo(allocation.size_bytes, allocation.heap, name)
        known = next(iter(table.values()), None)
        launched = known.graph if known else Graph(graph.name, self.backend, ir=graph, observer=self._observer)
        launched.add(key, self.backend.build(program, buffers))
        for name in plan.allocations:
            if not name.startswith(("weight/", "constant/")):
                launched.bind(_port(name, key), buffers[name])
        return _Built(launched, key, program, buffers)


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


def _now(spec: ir.BufferSpec, counts: tuple[int, int, int]) -> tuple[int, ...]:
    """A buffer's shape in a step of `counts` (tokens, sequences, rows)."""
    return tuple(counts[SYMBOLS.index(dim)] if isinstance(dim, str) else dim for dim in spec.shape)


def _room(rows: int, tokens: int) -> int:
    return 1 if rows <= 1 else tokens


def _port(allocation: str, key: tuple[int, ...]) -> str:
    return f"{allocation}@{','.join(map(str, key))}"
