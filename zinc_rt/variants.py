"""Variants of a model's graphs: planned, lowered and built for a capacity once, then replayed for ever."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.base import Backend
from zinc_rt.exec import Graph, Observer
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import SYMBOLS, Stage
from zinc_rt.ir.rewrite import inject as inject_labels
from zinc_rt.ir.verify import verify
from zinc_rt.model.emitter import DeltaForm, Limits, Model, Overrides
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model
from zinc_rt.resident import Resident, Variant

Transform = Callable[[ir.Graph], ir.Graph]


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
        self.delta_form: DeltaForm = delta_form
        self._overrides = overrides
        self._observer = observer
        self._transform = transform
        self.tap_always = False  # whatever is asked for: a recorder wants to see every node
        self._models: dict[Stage, Model] = {}
        self._resident: Resident | None = None
        self._built: dict[tuple[Stage, tuple[str, ...], bool], dict[tuple[int, ...], Variant]] = {}

    def model(self, stage: Stage) -> Model:
        if stage not in self._models:
            self._models[stage] = build_model(
                self._gguf, self._limits, stage, delta_form=self.delta_form, overrides=self._overrides
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
        tapped = tapped or self.tap_always
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
            if self._resident is None:
                model = self.model(stage)
                self._resident = Resident(self._backend, model.weights, model.constants)
            table[key] = self._resident.build(graph, key, replays, tapped=tapped)
        return table[key]

    def find(self, replays: Graph, key: tuple[int, ...]) -> Variant:
        """What was built for that key of an executable graph. Raises KeyError."""
        for table in self._built.values():
            if key in table and table[key].replays is replays:
                return table[key]
        raise KeyError(f"{replays.name} {key}")

    @property
    def observed(self) -> bool:
        return self._observer is not None

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` instead from here on, first of what is built already."""
        self._observer = observer
        for replays in {
            id(v.replays): v.replays for table in self._built.values() for v in table.values()
        }.values():
            replays.observe(observer or Observer())
