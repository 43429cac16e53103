"""Open an engine for serving from a model file and a tier, initially and again after a hang."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zinc_rt.engine.devices import Choice, choose_tier, open_backend
from zinc_rt.engine.engine import Engine, choose_default_ctx, choose_step_tokens
from zinc_rt.engine.engine_core import EngineCore
from zinc_rt.engine.graph_file import STAGES, GraphFile, GraphWriter, open_graph_file
from zinc_rt.engine.graph_store import GraphStore
from zinc_rt.engine.speculating import open_drafter
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.settings import Experts, Settings
from zinc_rt.host.version import digest_planning
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.sched.speculation import OFF, Drafter, SpeculationOptions, parse_speculation

EMBEDDED = Path(__file__).resolve().parents[1] / "golden"  # the models that ship with the package
MAX_SLOTS = 512


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The options that open a model for serving. Most fields are LLM's parameters. In addition:

    `pages` and `state_rows`: see SequenceLimits, None for the maximum that all slots can use; `unchecked`:
    see choose_tier; `simulated`: options of a simulated device; `speculate`: see `parse_speculation`;
    `prefill_ordering`: see EngineOptions; `graphs`: a graph file, "" for none.
    """

    tier: str = "auto"
    device: str = "auto"
    slots: int = 8
    ctx: int | None = None
    ordering: str = "canonical-1"
    threads: int = 0
    timeout: float | None = None
    pages: tuple[int, ...] | None = None
    state_rows: int | None = None
    unchecked: bool = False
    simulated: Mapping[str, Any] = field(default_factory=dict)
    graph_cache: bool = True
    experts: Experts = "auto"
    speculate: str = OFF
    kv_type: str = "f32"
    prefill_ordering: str = ""
    graphs: str | Path = ""


@dataclass(frozen=True, slots=True)
class EngineOpener:
    """A callable that opens a new engine for a model on a chosen device."""

    gguf: GGUFFile
    choice: Choice
    limits: SequenceLimits
    options: ModelOptions

    def __call__(self) -> Engine:
        options = self.options
        store: GraphStore | GraphFile | None = None
        if options.graphs:
            store = open_graph_file(options.graphs)
        elif options.graph_cache:
            store = GraphStore(digest_planning())
        return self._open(store)

    def save_graphs(self, path: str | Path) -> int:
        """Plan every step size, greedy and sampled, and write the graphs into a graph file, without loading the
        weights. Return its size in bytes. Raises UsageError for a tier without saved plans, OutputError."""
        writer = GraphWriter()
        with closing(EngineCore(self._open(writer), drafts=self.drafts)) as core:
            core.build_all(load=False)
            return writer.write(path, {stage: core.engine.variants.model(stage) for stage in STAGES})

    def _open(self, store: GraphStore | GraphFile | GraphWriter | None) -> Engine:
        options = self.options
        backend = open_backend(self.choice, options.ordering, threads=options.threads)
        engine_options = EngineOptions(
            settings=Settings(experts=options.experts),
            prefill_ordering=options.prefill_ordering,
            timeout_seconds=options.timeout,
            store=store,
        )
        try:
            return Engine(self.gguf, backend, limits=self.limits, options=engine_options)
        except BaseException:
            backend.close()
            raise

    @property
    def drafts(self) -> int:
        """Return the most draft tokens of a request in a step."""
        options = parse_speculation(self.options.speculate)
        return 0 if options is None else options.drafts

    def open_drafter(self, engine: Engine) -> Drafter | None:
        """Return the drafter for the opened model, None without speculation. Raises as `open_drafter`."""
        options = parse_speculation(self.options.speculate)
        return (
            None if options is None else open_drafter(engine, options, lambda file: self.make_draft_opener(file)())
        )

    def make_draft_opener(self, file: str) -> EngineOpener:
        """Return the opener of a draft model: on the same kind of device, with a sequence for each slot. Raises
        InputError for an unreadable file."""
        limits = SequenceLimits(self.limits.ctx, self.limits.slots, rows=self.limits.slots)
        options = replace(self.options, prefill_ordering="", graphs="")  # of drafts, which change no answer
        return replace(self, gguf=read_gguf(find_model_file(file)), limits=limits, options=options)


def make_engine_opener(model: str | Path, options: ModelOptions) -> EngineOpener:
    """Check a model and a device without opening them, and return an EngineOpener.

    Raises UsageError, UnsupportedError or InputError, each with advice.
    """
    slots, timeout = options.slots, options.timeout
    if not 1 <= slots <= MAX_SLOTS:
        raise UsageError(f"slots {slots}: expected 1 to {MAX_SLOTS}")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"timeout {timeout}: expected more than 0 seconds")
    choice = choose_tier(
        options.tier,
        options.device,
        ordering=options.ordering,
        unchecked=options.unchecked,
        **options.simulated,
    )
    gguf = read_gguf(find_model_file(model))
    if not gguf.tensors:
        raise InputError(
            f"{gguf.path}: the file contains a tokenizer but no tensors", next="use a complete model file"
        )
    speculation = parse_speculation(options.speculate)
    drafts = 0 if speculation is None else speculation.drafts
    rows = count_state_rows(slots, speculation) if options.state_rows is None else options.state_rows
    saved = open_graph_file(options.graphs) if options.graphs else None
    ctx = saved.limits.ctx if saved is not None and options.ctx is None else choose_default_ctx(gguf, options.ctx)
    limits = SequenceLimits(
        ctx,
        slots,
        step_tokens=choose_step_tokens(gguf, ctx),
        pages=options.pages,
        state_rows=rows,
        rows=slots * (1 + drafts),
        kv_type=options.kv_type,
        mtp=speculation is not None and speculation.kind == "mtp",
    )
    if saved is not None:
        saved.check_limits(limits)
    return EngineOpener(gguf, choice, limits, options)


def count_state_rows(slots: int, speculation: SpeculationOptions | None) -> int:
    """Return the rows of recurrent state for all slots: of each its state, that of its last page, and with drafts
    that before them; and the row of zeros."""
    return (2 + (speculation is not None)) * slots + 1


def find_model_file(model: str | Path) -> Path:
    """Return the file of a model: a path, or the name of a model in the package."""
    path = Path(model)
    shipped = EMBEDDED / f"{path.name}.gguf"
    return shipped if str(path) == path.name and not path.exists() and shipped.exists() else path
