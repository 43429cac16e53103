"""Speed of the oracle on a whole model of Qwen 3 0.6 B's shape, Q8_0, random weights.

    python3 ci/run.py bench perf/bench_model.py

T-CPU is the oracle, not an inference engine: these figures say what validating a real model costs. Each has the
limit the project holds itself to in its `extra_info`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.machine import available_cores
from zinc_rt.kernels.reference.arithmetic import ORDERINGS
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.synthetic import SHAPES, write_synthetic

PROMPT = list(range(1, 129))
CTX = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("model") / "model.gguf", SHAPES["qwen3-0.6b-q8_0"])


@pytest.fixture(params=ORDERINGS)
def engine(request: pytest.FixtureRequest, model: Path) -> Iterator[Engine]:
    with Engine(read_gguf(model), CpuBackend(request.param, threads=available_cores()), ctx=CTX) as opened:
        yield opened


def note(benchmark: Any, engine: Engine, **limits: object) -> None:
    benchmark.extra_info.update(
        ordering=engine.backend.ordering,
        cores=available_cores(),
        machine=engine.backend.device.name,
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        **limits,
    )


def test_decode_one_token(benchmark: Any, engine: Engine) -> None:
    request = engine.open()
    engine.extend(request, PROMPT[:4], rows="last")
    benchmark.pedantic(engine.extend, (request, [5]), {"rows": "last"}, rounds=5, warmup_rounds=1)
    note(benchmark, engine, limit_seconds=2.0 if engine.backend.ordering == "canonical-1" else None)


def test_prefill_128_tokens(benchmark: Any, engine: Engine) -> None:
    benchmark.pedantic(engine.forward, (PROMPT,), {"rows": "last"}, rounds=1, warmup_rounds=0)
    note(
        benchmark,
        engine,
        limit_seconds={"canonical-1": 150.0, "float32-dequant": 12.0}.get(engine.backend.ordering),
    )


def test_validate_the_embedded_models(benchmark: Any) -> None:
    argv = [sys.executable, "-m", "zinc_rt.cli", "validate", "--tiers", "t_cpu", "--no-cache"]
    benchmark.pedantic(subprocess.run, (argv,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=3)
    benchmark.extra_info.update(limit_seconds=60.0)


@pytest.mark.parametrize("command", ["", "validate", "run", "inspect", "logits", "tokenize", "golden"])
def test_help(benchmark: Any, command: str) -> None:
    argv = [sys.executable, "-m", "zinc_rt.cli", *([command] if command else []), "--help"]
    benchmark.pedantic(subprocess.run, (argv,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=5)
    benchmark.extra_info.update(limit_seconds=0.5)
