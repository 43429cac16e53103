"""Variants of a model's graphs: planned, lowered and built once per capacity, then replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from zinc_rt.backends.base import Backend
from zinc_rt.engine.graph_file import GraphFile, GraphWriter
from zinc_rt.engine.graph_store import GraphStore, StoredGraphs
from zinc_rt.engine.memory_fit import fit_model
from zinc_rt.engine.resident import Resident, Variant
from zinc_rt.exec import Graph, GraphCache, Observer
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.host.settings import EXPERTS, Experts, Settings
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import Stage, TokenRole
from zinc_rt.ir.op import WMMA_FORMS
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.ir.passes.matrix_cores import REPLACEMENTS, use_matrix_cores
from zinc_rt.ir.rewrite import inject_inputs as inject_labels
from zinc_rt.ir.verify import verify_graph
from zinc_rt.lower import PlannedGraph, find_refusal, plan_graph
from zinc_rt.mem.residency import Residency
from zinc_rt.model.builder import DeltaForm, Model, Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_draft_model, build_model
from zinc_rt.model.sample_graph import SampleForm, add_sampling

CAPACITIES = (1, 16, 128, 512)  # tokens, and rows of logits, that a variant holds where nothing is known of a load
MAX_GRAPHS = 32  # stages, sampling or not, tapped or not, with values injected or not; copies, late draws
Transform = Callable[[ir.OpGraph], ir.OpGraph]
# A stage of the model, or the prefill stage with products in the prefill ordering: every token is one of a prompt.
ModelGraph = Stage | Literal["prompt"]
PROMPT: Final = "prompt"
# Orderings in which answers do not depend on each other.
BIT_DEFINED = frozenset({"canonical-1", "canonical-1-q8"})


@dataclass(frozen=True, slots=True)
class BuiltStage:
    """The key of an executable graph. `graph`: a ModelGraph, or the name of another graph over the model's state.
    `form`: how a step samples, None for the most likely tokens only."""

    graph: str
    form: SampleForm | None
    inject: tuple[str, ...]
    tapped: bool
    timed: bool


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options for building, limiting and observing steps. The defaults are those of the product.

    `transform` may replace each stage's graph before lowering, to run a part of the model. `prefill_ordering`: the
    ordering of products with prompt tokens, "" for the backend's. `timeout_seconds`:
    step deadline; None: by device kind. `slow`: see Runner. `share_arenas`: variants share activation memory;
    validation disables it to detect stale data. `highest_pages_first`: see Pool. `around`: a context manager
    that spans the engine's `with` block, such as a recorder. `store`: cache graphs across starts, except
    transformed, tapped, injected or timed ones, on a tier that builds from plans. A GraphFile also has the models,
    a GraphWriter collects the graphs for such a file.
    """

    settings: Settings = field(default_factory=Settings)
    delta_form: DeltaForm = "ids"
    observers: Sequence[Observer] = ()
    transform: Transform | None = None
    prefill_ordering: str = ""
    timeout_seconds: float | None = None
    slow: Callable[[str], None] = lambda line: None
    share_arenas: bool = True
    highest_pages_first: bool = False
    around: Callable[[Any], AbstractContextManager[object]] = nullcontext
    store: GraphStore | GraphFile | GraphWriter | None = None


DEFAULTS = EngineOptions()


class Variants:
    """Builds variants on demand. Weights and state are shared, other buffers are per variant."""

    def __init__(
        self,
        gguf: GGUFFile,
        backend: Backend,
        limits: SequenceLimits,
        options: EngineOptions = DEFAULTS,
    ) -> None:
        """Create it without building. `options`: see EngineOptions."""
        self._gguf = gguf
        self.backend = backend
        self.limits = limits
        self.delta_form: DeltaForm = options.delta_form
        self._overrides = find_overrides(options.settings)
        self.observers = tuple(options.observers)
        self._transform = options.transform
        self.prefill_ordering = options.prefill_ordering
        self._share_arenas = options.share_arenas
        self.tap_always = False  # whatever is asked for: a recorder wants to see every node
        self.timed = False  # what is asked for from here on notes when its dispatches begin and end
        self._models: dict[Stage, Model] = {}
        self._resident: Resident | None = None
        self._experts: Experts = options.settings.experts
        self.residency: Residency | None = None  # once weights are resident, on a tier with memory of its own
        self._graphs = GraphCache(MAX_GRAPHS, dropped=self._free_graph)
        self._built: dict[BuiltStage, dict[tuple[int, ...], Variant]] = {}
        self._run: dict[BuiltStage, ir.OpGraph] = {}  # what the variants of one run: rewritten and verified once
        self._fitting: dict[
            tuple[object, ...], Variant
        ] = {}  # what `find_fitting` answered, while none is dropped
        self._capacities = list_token_capacities(limits)
        self._file = options.store if isinstance(options.store, GraphFile) else None
        if self._file is not None and not self.can_store:
            raise UsageError(
                f"{self._file.path}: tier {backend.spec.tier} runs graphs without saved plans",
                next="use a graph file with t1, t2 or vulkan",
            )
        self.stored = self._open_store(options.store) if options.store is not None and self.can_store else None

    @property
    def can_store(self) -> bool:
        """Return whether graphs can come from a store: those of the whole model, on a tier that builds from
        plans."""
        return self._transform is None and getattr(self.backend, "builds_planned", False)

    def _open_store(self, store: GraphStore | GraphFile | GraphWriter) -> StoredGraphs:
        return store.of(
            self._gguf,
            self.backend,
            limits=self.limits,
            delta_form=self.delta_form,
            overrides=self._overrides,
            prefill_ordering=self.prefill_ordering,
        )

    @contextmanager
    def rebuild_variants(
        self, store: GraphStore | None = None, *, tapped: bool = False
    ) -> Iterator[StoredGraphs | None]:
        """Within the block, build new variants on the same weights and state, from `store` or freshly planned;
        `tapped`: see `get`. They are freed at the end of the block, and the earlier variants are used again.
        """
        before = self._built, self._run, self._fitting, self._graphs, self.stored, self.tap_always
        self._built, self._run, self._fitting, self.tap_always = {}, {}, {}, tapped
        self._graphs = GraphCache(MAX_GRAPHS, dropped=self._free_graph)
        self.stored = None if store is None else self._open_store(store)
        try:
            yield self.stored
        finally:
            for table in self._built.values():
                for variant in list(table.values()):
                    self.resident.drop(variant)
            self._built, self._run, self._fitting, self._graphs, self.stored, self.tap_always = before

    def choose_stage(self, tokens: int, sequences: int, role: TokenRole) -> ModelGraph:
        """Return the graph for a step of so many tokens of one role. Tokens of prompts with a prefill ordering
        have one graph, whatever their number. Otherwise, a step with one token per sequence is a decode step;
        both stages give the same bits."""
        if role == "prompt" and self.prefill_ordering:
            return PROMPT
        return "decode" if tokens == sequences else "prefill"

    def check_prefill_ordering(self) -> None:
        """Check that the prefill ordering can be used. Raises UsageError for one that the ordering excludes,
        UnsupportedError if the tier has no kernel for a product."""
        name, ordering, tier = self.prefill_ordering, self.backend.ordering, self.backend.spec.tier
        if not name:
            return
        if name not in WMMA_FORMS:
            raise UsageError(f"prefill ordering {name!r}: expected {', '.join(WMMA_FORMS)}, or none")
        if ordering not in BIT_DEFINED:
            raise UsageError(
                f"prefill ordering {name} has defined bits, and ordering {ordering} has none",
                next="use canonical-1 or canonical-1-q8",
            )
        graph = self.graph(PROMPT)
        for node in graph.nodes:
            if node.op in REPLACEMENTS:
                reason = find_refusal(node, graph, self.backend.kernels.entries, ordering)
                if reason is not None:
                    raise UnsupportedError(
                        f"prefill ordering {name}: {tier} cannot run {node.op.name} at {node.label}: {reason}",
                        next="leave out the prefill ordering, or use another tier or chip",
                    )

    def model(self, stage: ModelGraph) -> Model:
        """Return the model of a stage. The prompt graph is made from that of the prefill stage."""
        if stage == PROMPT:
            return self.model("prefill")
        if stage not in self._models:
            if self._file is not None and self.stored is not None:
                self._models[stage] = self._file.load_model(self.stored, self._gguf, stage)
            else:
                self._models[stage] = build_model(
                    self._gguf, self.limits, stage, delta_form=self.delta_form, overrides=self._overrides
                )
        return self._models[stage]

    def graph(self, stage: ModelGraph, inject: tuple[str, ...] = ()) -> ir.OpGraph:
        """Return the graph of a stage, with the labelled values replaced by host inputs, after `transform`."""
        graph = self.model(stage).graph
        if inject:
            graph = inject_labels(graph, inject)
        if stage == PROMPT:
            graph = replace(use_matrix_cores(graph, self.prefill_ordering), name=f"{graph.name}-{PROMPT}")
        return graph if self._transform is None else self._transform(graph)

    @property
    def resident(self) -> Resident:
        """Return the model's device memory; weights are uploaded with the first variant."""
        if self._resident is None:
            model = self.model("prefill")
            self.residency = self._place_weights(model)
            self._resident = Resident(
                self.backend,
                model.weights,
                model.constants,
                share_arenas=self._share_arenas,
                host=self.residency.host if self.residency is not None else frozenset(),
            )
        return self._resident

    def _place_weights(self, model: Model) -> Residency | None:
        """Return the placement of the weights; None on a tier without separate memory. Raises InputError if they
        do not fit, UsageError for experts in host memory on a tier without a choice of placement.
        """
        memory_bytes = self.backend.device.memory_bytes
        if not memory_bytes:
            if self._experts == "gtt":
                raise UsageError(
                    f"tier {self.backend.spec.tier} has no dedicated VRAM",
                    next=f"unset {EXPERTS}, or use t1 or t2",
                )
            return None
        capacity = self._capacities[-1]
        return fit_model(
            model,
            self.backend.kernels,
            memory_bytes,
            tokens=capacity,
            rows=capacity if self.limits.rows is None else min(capacity, self.limits.rows),
            experts=self._experts,
            overrides=self._overrides,
        )

    def find_fitting(
        self,
        stage: ModelGraph,
        tokens: int,
        sequences: int,
        rows: int,
        *,
        entries: int = 0,
        form: SampleForm | None = None,
        inject: tuple[str, ...] = (),
        tapped: bool = False,
    ) -> Variant:
        """Return the variant of the smallest sufficient capacity. See `get`. `entries`: changes of one page
        table."""
        asked = stage, tokens, sequences, rows, form, inject, tapped or self.tap_always, self.timed
        variant = self._fitting.get(asked) if entries <= tokens + sequences else None
        if variant is None:
            key = self._find_smallest_key(tokens, sequences, rows, entries)
            variant = self.get(stage, key, form=form, inject=inject, tapped=tapped)
            if tokens == sequences >= entries:  # decode, whose sizes are few and come again and again
                self._fitting[asked] = variant
        return variant

    def _find_smallest_key(self, tokens: int, sequences: int, rows: int, entries: int) -> tuple[int, ...]:
        """The smallest capacity. If there are more entries than tokens and sequences can cause, as when a cached
        prefix is bound, there is room for the whole table. Raises UsageError for more than the largest variant
        supports.
        """
        limits = self.limits
        room = _find_least_capacity(self._capacities, max(tokens, sequences))
        if limits.rows is None:
            most_rows = min(room, _find_least_capacity(self._capacities, rows))
        else:
            most_rows = min(room, limits.rows)
            if rows > limits.rows:
                raise UsageError(f"a step can compute logits for at most {limits.rows} tokens, not {rows}")
        most_sequences = min(limits.slots, room)
        if entries <= room + most_sequences:
            return room, most_sequences, most_rows
        return room, most_sequences, most_rows, limits.slots * limits.pages_per_slot

    def get(
        self,
        stage: ModelGraph,
        key: tuple[int, ...],
        *,
        form: SampleForm | None = None,
        inject: tuple[str, ...] = (),
        tapped: bool = False,
    ) -> Variant:
        """Return the variant of a key: the maximum tokens, sequences and rows of logits. `form`: the step samples
        in this form; None: it only finds the most likely tokens. `tapped`: all values of the unfused graph are
        kept, and no activation shares memory, so all can be read after a replay."""
        built = BuiltStage(stage, form, inject, tapped or self.tap_always, self.timed)
        return self._get(built, key, lambda: self._build_graph(stage, built))

    def copy_variant(
        self, name: str, key: tuple[int, ...], make: Callable[[], ir.OpGraph], *, form: SampleForm | None = None
    ) -> Variant:
        """Return the variant of a graph that runs between steps over the model's state, such as a copy of pages.
        `name` and `form` identify it; `make` returns the verified graph, and is called at first use."""
        return self._get(BuiltStage(name, form, (), self.tap_always, self.timed), key, make)

    def draft_variant(self, sequences: int, entries: int) -> Variant:
        """Return the smallest variant that drafts a token of each of so many sequences by the model's MTP layer,
        with so many changes of the page table. The limits have `mtp`."""
        key = self._find_smallest_key(sequences, sequences, sequences, entries)
        return self.copy_variant("mtp", key, self._build_draft_graph)

    def _build_draft_graph(self) -> ir.OpGraph:
        graph = self.fuse_graph(build_draft_model(self.model("decode"), self._overrides).graph)
        verify_graph(graph)
        return graph

    def _get(self, built: BuiltStage, key: tuple[int, ...], make: Callable[[], ir.OpGraph]) -> Variant:
        table = self._built.get(built)
        known = table.get(key) if table is not None else None
        return known or self._build(built, key, make)

    def _build(self, built: BuiltStage, key: tuple[int, ...], make: Callable[[], ir.OpGraph]) -> Variant:
        table = self._built.setdefault(built, {})

        def handle_drop(key: tuple[int, ...]) -> None:
            del table[key]
            self._fitting.clear()

        def make_graph() -> Graph:
            return self.resident.graph(graph.name, graph, observers=self.observers, dropped=handle_drop)

        stored = None if built.inject or built.tapped or built.timed else self.stored
        if built not in self._run:
            self._run[built] = stored.graph((built.graph, built.form), make) if stored else make()
        graph = self._run[built]
        if stored:
            program = self._plan_stored(stored, built, graph, key)
            table[key] = self.resident.place(program, key, self._graphs.get(built, make_graph))
        else:
            replays = self._graphs.get(built, make_graph)
            table[key] = self.resident.build(graph, key, replays, tapped=built.tapped, timed=self.timed)
        return table[key]

    def _plan_stored(
        self, stored: StoredGraphs, built: BuiltStage, graph: ir.OpGraph, key: tuple[int, ...]
    ) -> PlannedGraph:
        lower_graph = self.resident.lower_graph
        return stored.program((built.graph, built.form), key, lambda: plan_graph(lower_graph(graph, key)))

    def plan(
        self, stage: ModelGraph, tokens: int, sequences: int, rows: int, *, form: SampleForm | None = None
    ) -> None:
        """Plan the variant that `find_fitting` would return into the store, without device memory."""
        built = BuiltStage(stage, form, (), tapped=False, timed=False)
        self._plan(
            built, self._find_smallest_key(tokens, sequences, rows, 0), lambda: self._build_graph(stage, built)
        )

    def plan_draft(self, sequences: int) -> None:
        """Plan the variant that `draft_variant` would return into the store, without device memory."""
        built = BuiltStage("mtp", None, (), tapped=False, timed=False)
        self._plan(built, self._find_smallest_key(sequences, sequences, sequences, 0), self._build_draft_graph)

    def _plan(self, built: BuiltStage, key: tuple[int, ...], make: Callable[[], ir.OpGraph]) -> None:
        if self.stored is None:
            raise UsageError(
                f"tier {self.backend.spec.tier} runs graphs without saved plans", next="use t1, t2 or vulkan"
            )
        graph = self.stored.graph((built.graph, built.form), make)
        self._plan_stored(self.stored, built, graph, key)

    def _build_graph(self, stage: ModelGraph, built: BuiltStage) -> ir.OpGraph:
        """The graph as a variant runs it. The model's own graph was verified when it was built."""
        graph = self.graph(stage, built.inject)
        if built.form is not None:
            graph = add_sampling(graph, built.form)
        if not built.tapped:
            graph = self.fuse_graph(graph)
        if graph is not self.model(stage).graph:
            verify_graph(graph)
        return graph

    def fuse_graph(self, graph: ir.OpGraph) -> ir.OpGraph:
        """Return the graph with the fused kernels that apply when its values are not observed."""
        return fuse_graph(graph, self._has_kernel) if self.backend.kernels.fuses else graph

    def _has_kernel(self, node: ir.Node, graph: ir.OpGraph) -> bool:
        """Return whether the backend's kernels support a node."""
        return find_refusal(node, graph, self.backend.kernels.entries, self.backend.ordering) is None

    def _free_graph(self, built: Any, graph: Graph) -> None:
        """Free the program of a graph that was evicted for another."""
        del self._run[built]
        for variant in self._built.pop(built).values():
            self.resident.drop(variant)
        self._fitting.clear()

    def unload(self) -> None:
        """Free all device memory. Raises InFlight while a replay runs."""
        if self._resident is not None:
            self._resident.unload()
        self._built.clear()
        self._run.clear()
        self._fitting.clear()
        self._graphs = GraphCache(MAX_GRAPHS, dropped=self._free_graph)

    def ran(self) -> list[Variant]:
        """Return the built variants that completed a replay."""
        return [item for table in self._built.values() for item in table.values() if item.ran]

    def find(self, replays: Graph, key: tuple[int, ...]) -> Variant:
        """Return the variant of an executable graph's key. Raises KeyError."""
        for table in self._built.values():
            if key in table and table[key].replays is replays:
                return table[key]
        raise KeyError(f"{replays.name} {key}")

    def observe(self, observers: Sequence[Observer]) -> None:
        """Set the observers. New ones are first notified of the existing variants."""
        self.observers = tuple(observers)
        for replays in {variant.replays for table in self._built.values() for variant in table.values()}:
            replays.observe(observers)


def list_token_capacities(limits: SequenceLimits) -> tuple[int, ...]:
    """Return the token capacities of variants in ascending order. If rows of logits are limited, a scheduler
    drives the steps, most of which decode one token per slot."""
    if limits.rows is None:
        wanted = {*CAPACITIES, limits.step_tokens}
    else:
        most = max(limits.slots, limits.rows)  # with drafts, a slot has several rows
        wanted = {1, 16, -(-limits.slots // 16) * 16, -(-most // 16) * 16, limits.step_tokens}
    return tuple(sorted(tokens for tokens in wanted if tokens <= limits.step_tokens))


def _find_least_capacity(capacities: tuple[int, ...], count: int) -> int:
    """Return the smallest capacity that holds this number. Raises UsageError if no capacity is large enough."""
    for capacity in capacities:
        if capacity >= count:
            return capacity
    raise UsageError(f"a step accepts 1 to {capacities[-1]} tokens, not {count}")


def find_overrides(settings: Settings) -> Overrides:
    """Return the settings that differ from the file."""
    return Overrides(
        lm_head_rows=settings.lm_head_rows,
        decode_topk=settings.decode_topk,
        gemma4_attn_scale=settings.gemma4_attn_scale,
    )
