"""Variants of a model's graphs: planned, lowered and built for a capacity once, then replayed for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zinc_rt.exec import Buffer, Graph, Observer
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import SYMBOLS, Stage
from zinc_rt.ir.rewrite import inject as inject_labels
from zinc_rt.ir.verify import verify
from zinc_rt.lower import Program, lower
from zinc_rt.mem.heaps import ROLE_HEAPS, Heap
from zinc_rt.mem.plan import plan_memory
from zinc_rt.model.emitter import DeltaForm, Limits, Model, Overrides
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model
from zinc_rt.ring.base import Backend

Transform = Callable[[ir.Graph], ir.Graph]
Counts = tuple[int, int, int]  # of a step, in the order of SYMBOLS: tokens, sequences, rows
NUMPY_DTYPES = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}
RESIDENT = ("weight", "constant")  # roles that are uploaded, not allocated by the plan
TAPPED_HEAPS = {**ROLE_HEAPS, "activation": Heap.BAR}  # the host looks at them


@dataclass(frozen=True, slots=True)
class Variant:
    """One lowered graph of one capacity, and the host's way to its buffers."""

    replays: Graph
    key: tuple[int, ...]
    program: Program

    @property
    def graph(self) -> ir.Graph:
        return self.program.graph

    def write(self, name: str, data: np.ndarray | bytes, *, offset_bytes: int = 0) -> None:
        """Into a buffer by its logical name; refused while a replay may still read it (exec.InFlight)."""
        place = self.program.plan.placements[name]
        self.replays.write(_port(place.allocation, self.key), place.offset_bytes + offset_bytes, data)

    def read(self, name: str, counts: Counts) -> np.ndarray:
        """A view of the rows a step of `counts` filled, valid until the next replay."""
        spec, place = self.graph.buffers[name], self.program.plan.placements[name]
        capacity = self.program.plan.capacity
        shape = tuple(capacity[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        view = self.replays.view(_port(place.allocation, self.key))
        flat = np.frombuffer(view, NUMPY_DTYPES[spec.dtype], int(np.prod(shape)), place.offset_bytes)
        return flat.reshape(shape)[: self.shape(name, counts)[0]]

    def shape(self, name: str, counts: Counts) -> tuple[int, ...]:
        """A buffer's shape in a step of `counts`."""
        dims = self.graph.buffers[name].shape
        return tuple(counts[SYMBOLS.index(dim)] if isinstance(dim, str) else dim for dim in dims)


class Variants:
    """Builds variants on demand. Weights and state are shared by all of them, the rest is each one's own."""

    def __init__(
        self,
        gguf: GGUFFile,
        backend: Backend,
        limits: Limits,
        *,
        delta_form: DeltaForm = "ids",
        overrides: Overrides | None = None,
        observer: Observer | None = None,
        transform: Transform | None = None,
    ) -> None:
        self._gguf = gguf
        self._backend = backend
        self._limits = limits
        self._delta_form: DeltaForm = delta_form
        self._overrides = overrides
        self._observer = observer
        self._transform = transform
        self._models: dict[Stage, Model] = {}
        self._weights: dict[str, Buffer] = {}
        self._state: dict[str, Buffer] = {}
        self._built: dict[tuple[Stage, tuple[str, ...], bool], dict[tuple[int, ...], Variant]] = {}

    def model(self, stage: Stage) -> Model:
        if stage not in self._models:
            self._models[stage] = build_model(
                self._gguf, self._limits, stage, delta_form=self._delta_form, overrides=self._overrides
            )
        return self._models[stage]

    def graph(self, stage: Stage, inject: tuple[str, ...] = ()) -> ir.Graph:
        """The graph a stage runs: with the labelled values fed from the host, then after `transform`."""
        graph = self.model(stage).graph
        if inject:
            graph = inject_labels(graph, inject)
        return graph if self._transform is None else self._transform(graph)

    def any(self) -> Variant | None:
        """One that was built, to reach the shared state through; None before the first."""
        return next((variant for table in self._built.values() for variant in table.values()), None)

    def get(
        self, stage: Stage, capacity: dict[str, int], *, inject: tuple[str, ...] = (), tapped: bool = False
    ) -> Variant:
        """`tapped`: no activation shares memory with another, so all can be looked at after a replay."""
        table = self._built.setdefault((stage, inject, tapped), {})
        key = tuple(capacity[symbol] for symbol in SYMBOLS)
        if key not in table:
            graph = self.graph(stage, inject)
            if inject or self._transform is not None:
                verify(graph)
            known = next(iter(table.values()), None)
            replays = (
                known.replays if known else Graph(graph.name, self._backend, ir=graph, observer=self._observer)
            )
            table[key] = self._build(graph, self.model(stage), capacity, key, replays, tapped)
        return table[key]

    def _build(
        self,
        graph: ir.Graph,
        model: Model,
        capacity: dict[str, int],
        key: tuple[int, ...],
        replays: Graph,
        tapped: bool,
    ) -> Variant:
        backend = self._backend
        plan = plan_memory(graph, capacity=capacity, tap=tapped, heaps=TAPPED_HEAPS if tapped else ROLE_HEAPS)
        program = lower(graph, backend.entries(), plan, ordering=backend.ordering, tier=backend.tier.value)
        if not self._weights:
            self._weights = backend.upload(model.weights, model.constants)
        own: dict[str, Buffer] = {}
        for name, allocation in plan.allocations.items():
            role = name.partition("/")[0]
            if role in RESIDENT:
                continue
            kept = self._state if role == "state" else own
            if name not in kept:
                kept[name] = backend.alloc_bo(allocation.size_bytes, allocation.heap, name)
            own[name] = kept[name]
        replays.add(key, backend.build(program, {**self._weights, **own}))
        for name, buffer in own.items():
            replays.bind(_port(name, key), buffer)
        return Variant(replays, key, program)


def _port(allocation: str, key: tuple[int, ...]) -> str:
    """Variants of one graph have step blocks and outputs of their own."""
    return f"{allocation}@{','.join(map(str, key))}"
