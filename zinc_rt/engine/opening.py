"""A model file and a tier become an engine with room for many requests, now and again after a hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.engine.devices import Choice, choose_tier, open_backend
from zinc_rt.engine.engine import Engine, default_ctx
from zinc_rt.engine.graph_store import GraphStore
from zinc_rt.errors import InputError, UsageError
from zinc_rt.host.settings import Experts, Settings
from zinc_rt.host.version import planning_version
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf

EMBEDDED = Path(__file__).resolve().parents[1] / "golden"  # the models that ship with the package
MAX_SLOTS = 512


@dataclass(frozen=True, slots=True)
class EngineOpener:
    """Opens such an engine as often as it is called."""

    gguf: GGUFFile
    choice: Choice
    limits: SequenceLimits
    ordering: str = "canonical-1"
    threads: int = 0
    timeout_seconds: float | None = None  # that one step may take
    store: GraphStore | None = None
    experts: Experts = "auto"

    def __call__(self) -> Engine:
        backend = open_backend(self.choice, self.ordering, threads=self.threads)
        try:
            return Engine(
                self.gguf,
                backend,
                limits=self.limits,
                timeout_seconds=self.timeout_seconds,
                store=self.store,
                settings=Settings(experts=self.experts),
            )
        except BaseException:
            backend.close()
            raise


def engine_opener(
    model: str | Path,
    tier: str = "auto",
    device: str = "auto",
    slots: int = 8,
    ctx: int | None = None,
    *,
    ordering: str = "canonical-1",
    threads: int = 0,
    timeout: float | None = None,
    pages: tuple[int, ...] | None = None,
    state_rows: int | None = None,
    unchecked: bool = False,
    simulated: Mapping[str, Any] | None = None,
    graph_cache: bool = True,
    experts: Experts = "auto",
) -> EngineOpener:
    """What is checked of a model and a device before anything is opened; parameters as LLM has them, `pages` and
    `state_rows` as SequenceLimits, None for what all slots can use, `unchecked` as choose_tier; `simulated`: what
    is asked of a simulated device; `graph_cache`: start from graphs that are kept, and keep them; `experts`: as
    place_weights. Raises
    UsageError, UnsupportedError or InputError, each with what to do."""
    if not 1 <= slots <= MAX_SLOTS:
        raise UsageError(f"slots {slots}: wanted 1 to {MAX_SLOTS}")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"timeout {timeout}: wanted seconds, more than 0")
    choice = choose_tier(tier, device, ordering=ordering, unchecked=unchecked, **(simulated or {}))
    gguf = read_gguf(model_file(model))
    if not gguf.tensors:
        raise InputError(
            f"{gguf.path}: a vocabulary only, without tensors to compute with", next="use a whole model"
        )
    rows = 2 * slots + 1 if state_rows is None else state_rows
    limits = SequenceLimits(default_ctx(gguf, ctx), slots, pages=pages, state_rows=rows, rows=slots)
    store = GraphStore(planning_version()) if graph_cache else None
    return EngineOpener(gguf, choice, limits, ordering, threads, timeout, store, experts)


def model_file(model: str | Path) -> Path:
    """A model's file: a path, or the name of one that ships with the package."""
    path = Path(model)
    shipped = EMBEDDED / f"{path.name}.gguf"
    return shipped if str(path) == path.name and not path.exists() and shipped.exists() else path
