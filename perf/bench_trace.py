"""What recording costs at each level, what it writes, and how fast a log runs again.

    python3 ci/run.py bench perf/bench_trace.py

The model is an embedded one, whose steps take milliseconds: a larger model hides the same cost. `ratio` in
`extra_info` is against the same work without a recorder, taken in turns with it so that both see the same machine;
the smallest of all rounds is compared. Level digest has a limit of 1.05 on the default validation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.devices import ORACLE
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay.run import replay
from zinc_rt.trace.command import main as trace
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import LEVELS, Level
from zinc_rt.validate.command import main as validate

MODEL = FOLDER / "qwen3-q.gguf"
PROMPT = list(range(1, 65))
DECODE = 48
ROUNDS = 5
VALIDATE = ["--tiers", "t_cpu", "--no-cache"]


def generate(engine: Engine) -> float:
    """Seconds of a prompt and DECODE tokens."""
    began = time.perf_counter()
    sequence = engine.open()
    logits = engine.extend(sequence, PROMPT, rows="last")
    for _ in range(DECODE):
        logits = engine.extend(sequence, [int(logits[-1].argmax())], rows="last")
    engine.release(sequence)
    return time.perf_counter() - began


def in_turns(*works: Callable[[], float]) -> list[float]:
    """The least seconds of each over ROUNDS rounds."""
    taken = [[work() for work in works] for _ in range(ROUNDS)]
    return [min(each) for each in zip(*taken, strict=True)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_generation_recorded(benchmark: Any, level: Level, tmp_path: Path) -> None:
    size = 0
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=256) as engine:
        generate(engine)

        def once(recorded: bool) -> float:
            nonlocal size
            with record(engine, tmp_path / "a.zlog", level) if recorded else nullcontext() as log:
                generate(engine)  # the first steps write what is written once
                before = log.size_bytes if log is not None else 0
                seconds = generate(engine)
                if log is not None:
                    size = log.size_bytes - before
            return seconds

        plain, recorded = in_turns(lambda: once(False), lambda: once(True))
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(
        ratio=round(recorded / plain, 3),
        seconds=round(plain, 3),
        seconds_recorded=round(recorded, 3),
        bytes_a_token=round(size / (len(PROMPT) + DECODE)),
        level=level,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_the_default_validation_recorded(benchmark: Any, level: Level, tmp_path: Path) -> None:
    traced = ["-o", str(tmp_path / "v.zlog"), "--level", level, "--", "validate", *VALIDATE]

    def timed(command: Callable[[list[str]], int], argv: list[str]) -> float:
        began = time.process_time()  # CPU seconds: wall time is other processes' too
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            assert command(argv) == 0
        return time.process_time() - began

    timed(validate, VALIDATE)
    plain, recorded = in_turns(lambda: timed(validate, VALIDATE), lambda: timed(trace, traced))
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(
        ratio=round(recorded / plain, 3),
        limit_ratio=1.05 if level == "digest" else None,
        seconds=round(plain, 3),
        log_bytes=sum(each.stat().st_size for each in tmp_path.glob("*.zlog")),
        level=level,
    )


@pytest.mark.parametrize("level", ["inputs", "full"])
def test_a_replay_against_the_live_run(benchmark: Any, level: Level, tmp_path: Path) -> None:
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
