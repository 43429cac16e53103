"""What a start does before weights move: graphs and plans made anew, or read back from an earlier start.

    python3 ci/run.py bench perf/bench_start.py

Of Qwen 3.6 35B-A3B's shape (a header-only file, perf/synthetic.py) for gfx1201: decode of one token and a prefill
of 512, the two that a request needs. Not in it: opening the file and the model whose weights are uploaded, which a
start reads either way, and packets, which need addresses.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device
from zinc_rt.engine.graph_store import GraphStore, StoredGraphs
from zinc_rt.engine.resident import Resident
from zinc_rt.host.version import planning_version
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.ir.passes.fuse import fuse
from zinc_rt.ir.verify import verify
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.lower import PlannedGraph, planned, refusal
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.perf.synthetic import SHAPES, write_synthetic

LIMITS = SequenceLimits(ctx=4096)
PROGRAMS: tuple[tuple[Stage, tuple[int, ...]], ...] = (("decode", (1, 1, 1)), ("prefill", (512, 1, 1)))


class NoDevice:
    """What plans are made for: a tier's kernels and ordering, and no memory."""

    kernels, ordering = KERNELS, "canonical-1"
    spec, device = registry.spec("t1"), Device("none", DEFAULT_ARCH)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    return read_gguf(write_synthetic(path, SHAPES["qwen3.6-35b-a3b-q4_k_xl"], header_only=True))


def stored(gguf: GGUFFile, folder: Path) -> StoredGraphs:
    backend: Any = NoDevice
    return GraphStore(planning_version(), folder).of(gguf, backend, LIMITS)


def start(gguf: GGUFFile, kept: StoredGraphs) -> list[PlannedGraph]:
    """Both programs, as Variants comes by them."""
    backend: Any = NoDevice
    resident = Resident(backend, {}, {})

    def answers(node: Any, within: Any) -> bool:
        return refusal(node, within, KERNELS.entries, NoDevice.ordering) is None

    def rewritten(stage: Stage) -> Any:
        graph = fuse(build_model(gguf, LIMITS, stage).graph, answers)
        verify(graph)
        return graph

    def made(graph: OpGraph, key: tuple[int, ...]) -> PlannedGraph:
        return planned(resident.lowered(graph, key))

    programs = []
    for stage, key in PROGRAMS:
        graph = kept.graph(stage, partial(rewritten, stage))
        programs.append(kept.program(stage, key, partial(made, graph, key)))
    return programs


def note(benchmark: Any, programs: list[PlannedGraph]) -> None:
    dispatches = [sum(1 for _ in program.dispatches.dispatches) for program in programs]
    benchmark.extra_info.update(note=f"{' and '.join(map(str, dispatches))} dispatches")


def test_plan_from_nothing(benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in range(1000))
    programs = benchmark.pedantic(
        start, setup=lambda: ((gguf, stored(gguf, next(folders))), {}), rounds=5, warmup_rounds=1
    )
    note(benchmark, programs)


def test_read_back(benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
    made = start(gguf, stored(gguf, tmp_path))
    programs = benchmark.pedantic(
        start, setup=lambda: ((gguf, stored(gguf, tmp_path)), {}), rounds=20, warmup_rounds=2
    )
    assert programs == made
    note(benchmark, programs)


def test_name_the_files(benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
    """The digests of the model's header and of the code that plans, which a start needs first."""

    def digests() -> StoredGraphs:
        planning_version.cache_clear()
        return stored(gguf, tmp_path)

    benchmark.pedantic(digests, rounds=10, warmup_rounds=1)
