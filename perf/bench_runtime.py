"""Measure a start without weights, the cost of recording, and the cost of sampling.

python3 ci/run.py bench perf/bench_runtime.py [-k TestStart|TestTrace|TestSample]

start   graphs and plans planned from nothing, or read back from an earlier start. The shape is Qwen 3.6
        35B-A3B's (a header-only file, perf/synthetic.py) for gfx1201; the programs are decode of one token and
        a prefill of 512, the two that a request needs. Not included: opening the file and the model whose
        weights are uploaded, which a start reads either way, and packets, which need addresses.
trace   recording at each level, the bytes written, and the speed of a replay. The model is an embedded one,
        whose steps take milliseconds: a larger model hides the same cost. `ratio` in `extra_info` is against
        the same work without a recorder, in turns, so that both see the same machine; the smallest of all
        rounds is compared. Level digest has a limit of 1.05 on the default validation.
sample  the sample graph over a real vocabulary on t_cpu_native, by the sampling parameters of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.base import Backend, Device
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.devices import ORACLE, choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.graph_store import GraphStore, StoredGraphs
from zinc_rt.engine.resident import Resident
from zinc_rt.engine.runner import StepBlock
from zinc_rt.exec import Stream
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.version import digest_planning
from zinc_rt.ir.dtypes import ACTIVATION, INDEX
from zinc_rt.ir.graph import Builder, OpGraph, Stage
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.ir.slot_record import SlotFlag, free_records, view_dwords
from zinc_rt.ir.verify import verify_graph
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.lower import PlannedGraph, find_refusal, plan_graph
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.model.sample_graph import DRAWN, LOGITS, SampleForm, add_sampling
from zinc_rt.perf.synthetic import SHAPES, write_synthetic
from zinc_rt.replay.run import replay
from zinc_rt.trace.command import main as trace
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import LEVELS, Level
from zinc_rt.validate.command import main as validate

LIMITS = SequenceLimits(ctx=4096)
PROGRAMS: tuple[tuple[Stage, tuple[int, ...]], ...] = (("decode", (1, 1, 1)), ("prefill", (512, 1, 1)))


class NoDeviceBackend:
    """A tier with kernels and an ordering but no memory, for planning."""

    kernels, ordering = KERNELS, "canonical-1"
    spec, device = registry.spec("t1"), Device("none", DEFAULT_ARCH)


def open_store(gguf: GGUFFile, folder: Path) -> StoredGraphs:
    backend: Any = NoDeviceBackend
    return GraphStore(digest_planning(), folder).of(gguf, backend, limits=LIMITS)


def start_model(gguf: GGUFFile, kept: StoredGraphs) -> list[PlannedGraph]:
    """Build both programs as Variants does."""
    backend: Any = NoDeviceBackend
    resident = Resident(backend, {}, {})

    def supports_node(node: Any, within: Any) -> bool:
        return find_refusal(node, within, KERNELS.entries, NoDeviceBackend.ordering) is None

    def keep_graph(stage: Stage) -> Any:
        graph = fuse_graph(build_model(gguf, LIMITS, stage).graph, supports_node)
        verify_graph(graph)
        return graph

    def plan(graph: OpGraph, key: tuple[int, ...]) -> PlannedGraph:
        return plan_graph(resident.lower_graph(graph, key))

    programs = []
    for stage, key in PROGRAMS:
        graph = kept.graph(stage, partial(keep_graph, stage))
        programs.append(kept.program(stage, key, partial(plan, graph, key)))
    return programs


def note_dispatches(benchmark: Any, programs: list[PlannedGraph]) -> None:
    dispatches = [sum(1 for _ in program.dispatches.dispatches) for program in programs]
    benchmark.extra_info.update(note=f"{' and '.join(map(str, dispatches))} dispatches")


class TestStart:
    @pytest.fixture(scope="module")
    @classmethod
    def gguf(cls, tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
        path = tmp_path_factory.mktemp("model") / "model.gguf"
        return read_gguf(write_synthetic(path, SHAPES["qwen3.6-35b-a3b-q4_k_xl"], header_only=True))

    def test_plan_from_nothing(self, benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
        folders = (tmp_path / str(number) for number in range(1000))
        programs = benchmark.pedantic(
            start_model, setup=lambda: ((gguf, open_store(gguf, next(folders))), {}), rounds=5, warmup_rounds=1
        )
        note_dispatches(benchmark, programs)

    def test_read_back(self, benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
        started = start_model(gguf, open_store(gguf, tmp_path))
        programs = benchmark.pedantic(
            start_model, setup=lambda: ((gguf, open_store(gguf, tmp_path)), {}), rounds=20, warmup_rounds=2
        )
        assert programs == started
        note_dispatches(benchmark, programs)

    def test_name_the_files(self, benchmark: Any, gguf: GGUFFile, tmp_path: Path) -> None:
        """Measure the digests of the model's header and of the planning code, which a start needs first."""

        def digests() -> StoredGraphs:
            digest_planning.cache_clear()
            return open_store(gguf, tmp_path)

        benchmark.pedantic(digests, rounds=10, warmup_rounds=1)


MODEL = FOLDER / "qwen3-q.gguf"
PROMPT = list(range(1, 65))
DECODE = 48
ROUNDS = 5
VALIDATE = ["--tiers", "t_cpu", "--no-cache"]


def generate(engine: Engine) -> float:
    """Return the seconds of a prompt and DECODE tokens."""
    start = time.perf_counter()
    sequence = engine.open()
    logits = engine.extend(sequence, PROMPT, rows="last")
    for _ in range(DECODE):
        logits = engine.extend(sequence, [int(logits[-1].argmax())], rows="last")
    engine.release(sequence)
    return time.perf_counter() - start


def time_alternately(*works: Callable[[], float]) -> list[float]:
    """Return the minimum seconds of each over ROUNDS alternating rounds."""
    taken = [[work() for work in works] for _ in range(ROUNDS)]
    return [min(item) for item in zip(*taken, strict=True)]


class TestTrace:
    @pytest.mark.parametrize("level", LEVELS)
    def test_a_generation_recorded(self, benchmark: Any, level: Level, tmp_path: Path) -> None:
        size = 0
        with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=256) as engine:
            generate(engine)

            def time_once(recorded: bool) -> float:
                nonlocal size
                with record(engine, tmp_path / "a.zlog", level) if recorded else nullcontext() as log:
                    generate(engine)  # the first steps do one-time writes
                    before = log.size_bytes if log is not None else 0
                    seconds = generate(engine)
                    if log is not None:
                        size = log.size_bytes - before
                return seconds

            plain, recorded = time_alternately(lambda: time_once(False), lambda: time_once(True))
        benchmark.pedantic(lambda: None, rounds=1)
        benchmark.extra_info.update(
            ratio=round(recorded / plain, 3),
            seconds=round(plain, 3),
            seconds_recorded=round(recorded, 3),
            bytes_a_token=round(size / (len(PROMPT) + DECODE)),
            level=level,
        )

    @pytest.mark.parametrize("level", LEVELS)
    def test_the_default_validation_recorded(self, benchmark: Any, level: Level, tmp_path: Path) -> None:
        traced = ["-o", str(tmp_path / "v.zlog"), "--level", level, "--", "validate", *VALIDATE]

        def time_command(command: Callable[[list[str]], int], argv: list[str]) -> float:
            process_time = time.process_time()  # CPU seconds: wall time is other processes' too
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                assert command(argv) == 0
            return time.process_time() - process_time

        time_command(validate, VALIDATE)
        plain, recorded = time_alternately(
            lambda: time_command(validate, VALIDATE), lambda: time_command(trace, traced)
        )
        benchmark.pedantic(lambda: None, rounds=1)
        benchmark.extra_info.update(
            ratio=round(recorded / plain, 3),
            limit_ratio=1.05 if level == "digest" else None,
            seconds=round(plain, 3),
            log_bytes=sum(path.stat().st_size for path in tmp_path.glob("*.zlog")),
            level=level,
        )

    @pytest.mark.parametrize("level", ["inputs", "full"])
    def test_a_replay_against_the_live_run(self, benchmark: Any, level: Level, tmp_path: Path) -> None:
        path = tmp_path / "a.zlog"
        with (
            Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=256) as engine,
            record(engine, path, level),
        ):
            generate(engine)
        outcomes = [replay(path, ORACLE, threads=1) for _ in range(ROUNDS)]
        assert all(outcome.equal for outcome in outcomes)
        best = min(outcomes, key=lambda outcome: outcome.seconds)
        benchmark.pedantic(lambda: None, rounds=1)
        benchmark.extra_info.update(
            ratio=round(best.seconds / best.live_seconds, 3),
            seconds=round(best.seconds, 3),
            live_seconds=round(best.live_seconds, 3),
            steps=best.steps,
            level=level,
        )


VOCAB, SLOTS = 151_936, 16
WANTS: dict[str, dict[str, float]] = {
    "greedy": {},
    "top_k 40, top_p 0.9": {"temperature": 0.8, "top_k": 40, "top_p": 0.9},
    "temperature alone": {"temperature": 1.0},
    "greedy with penalties": {"repetition": 1.1, "frequency": 0.2, "presence": 0.1},
    "greedy with 5 logprobs": {"logprobs": 5},
}


class TestSample:
    @pytest.fixture(scope="module")
    @classmethod
    def backend(cls) -> Iterator[Backend]:
        try:
            backend = open_backend(choose_tier("t_cpu_native"), "canonical-1")
        except UnsupportedError as error:
            pytest.skip(str(error))
        yield backend
        backend.close()

    @pytest.mark.parametrize("rows", [1, SLOTS])
    @pytest.mark.parametrize("wants", WANTS)
    def test_sample(self, benchmark: Any, backend: Backend, wants: str, rows: int) -> None:
        records = free_records(SLOTS)
        for name, value in WANTS[wants].items():
            records[name] = value
        if "penalties" in wants:
            records["flags"], records["penalty_row"] = SlotFlag.PENALTIES, np.arange(SLOTS)
        form = SampleForm(VOCAB, SLOTS, penalty_rows=SLOTS, top=5 if "logprobs" in wants else None)
        logits = Builder("logits")
        logits.buffer("step.counts", (8,), INDEX, "step")
        logits.buffer(LOGITS, ("rows", VOCAB), ACTIVATION, "state")
        resident, graph = Resident(backend, {}, {}), add_sampling(logits.build(), form)
        variant = resident.build(graph, (1, SLOTS, SLOTS), resident.graph(graph.name, graph))
        variant.write(LOGITS, np.random.default_rng(1).normal(size=(SLOTS, VOCAB)).astype(np.float32) * 3)
        block, stream = StepBlock(variant), Stream("bench")
        block.counts[1], block.counts[2] = SLOTS, rows
        block.views["sample.record_slot"][:] = block.views["sample.row_slot"][:] = np.arange(SLOTS)
        block.views["sample.record"][:] = view_dwords(records)

        def step() -> None:
            variant.write_step(block.raw)
            variant.submit(stream).wait(60)

        step()
        assert (variant.read(DRAWN, (0, SLOTS, rows, 0)) >= 0).all()
        benchmark.extra_info["note"] = f"{rows} rows of {VOCAB}"
        benchmark.pedantic(step, rounds=9, warmup_rounds=2)
        resident.unload()
